"""The stream of changes: from a publish to the last byte at each client, the bytes of a change, the memory of a client.

One process publishes a book and serves it; another one has all clients, each with a connection of its own. *A bare
asyncio server* writes the prepared event to all connections, and knows nothing of books.
"""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.books import book
from benchmarks.measure import Group, Row, alone, compared, percentile
from benchmarks.seen import ROOT
from market_index import LiveIndex, OrderBook, wire
from market_index_cli.server.http_server import Server
from market_index_cli.server.listeners import bind
from market_index_http import create_app

OURS: Final = "ours"
BARE: Final = "a bare asyncio server"
LEVELS: Final = 500


def groups(*, quick: bool) -> dict[str, Group]:
    counts = (1, 100) if quick else (1, 100, 1_000)
    found: dict[str, Group] = {f"clients_{count}": partial(arrivals, count, 20 if quick else 60) for count in counts}
    return found | {"memory": partial(memory, 200 if quick else 1_000)}


def made() -> OrderBook:
    return book(random.Random(12), LEVELS)


def changed(one: OrderBook, number: int) -> OrderBook:
    """Return the book with another amount of one level, and the number as its spot price."""
    return one.apply(bids=[(one.bids[number % 50].price, number + 1)], spot=str(number))


def arrivals(count: int, publishes: int) -> Iterator[Row]:
    """Measure the milliseconds from a publish to its last byte at each client."""
    waits: dict[str, list[float]] = {OURS: [], BARE: []}
    sizes: list[float] = []
    for _ in range(5):
        for kind, medians in waits.items():
            sent, arrived, size = one_round(kind, count, publishes)
            medians.append(percentile([(at - sent[number]) / 1e6 for number, at in arrived], 50))
            sizes += [size] if kind == OURS else []
    work = f"publish to the last byte, {count:,} clients: p50"
    yield compared(work, "ms", waits, OURS, BARE)
    if count == 1:
        yield alone(f"bytes of a change of one level in {LEVELS} a side", "B", sizes)


def one_round(kind: str, count: int, publishes: int) -> tuple[dict[int, int], list[tuple[int, int]], float]:
    """Return when each number was sent, the number and the time of each arrival, and the bytes of an event."""
    publish, port = serve(kind)
    clients = elsewhere("follow", port, count, publishes)
    sent: dict[int, int] = {}
    for number in range(1, publishes + 1):
        time.sleep(0.03)
        sent[number] = time.monotonic_ns()
        publish(number)
    size, *lines = clients.communicate(timeout=120)[0].splitlines()
    return sent, [(int(number), int(at)) for number, at in map(str.split, lines)], float(size)


def elsewhere(task: str, *arguments: object) -> subprocess.Popen[str]:
    """Start the clients in another process, and wait until they are connected."""
    command = [sys.executable, "-m", "benchmarks.stream", task, *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def serve(kind: str) -> tuple[Callable[[int], object], int]:
    """Serve in threads of this process. Return what publishes a number, and the port."""
    return serve_ours() if kind == OURS else serve_bare()


def serve_ours() -> tuple[Callable[[int], object], int]:
    live, one = LiveIndex([made()]), made()
    listener = bind("127.0.0.1", 0)
    server = Server(create_app(live, stream=True))
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    return lambda number: live.publish(changed(one, number)), listener.getsockname()[1]


def serve_bare() -> tuple[Callable[[int], object], int]:
    one, loop = made(), asyncio.new_event_loop()
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: version\ndata: {}\n\n")
        writers.append(writer)

    def write(event: bytes) -> None:
        for writer in writers:
            writer.write(event)

    def publish(number: int) -> None:
        data = wire.order_book_changes_to_json(changed(one, number), one)
        event = b"event: change\ndata: %b\n\nevent: version\ndata: {}\n\n" % data
        loop.call_soon_threadsafe(write, event)

    server = loop.run_until_complete(asyncio.start_server(connected, "127.0.0.1", 0, backlog=2_000))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return publish, server.sockets[0].getsockname()[1]


async def follow(port: int, count: int, last: int) -> None:
    """Open streams, print `ready` once each has a version, then the bytes of an event and each arrival."""
    arrived: list[tuple[int, int]] = []
    sizes: list[int] = []

    async def one(is_ready: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        writer.write(b"GET /stream?levels=changed HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"event: version")
        is_ready.set()
        number = 0
        while number != last:
            text = await reader.readuntil(b"event: version")
            sizes.append(len(text))
            found = re.search(rb'"spot":"(\d+)"', text)
            number = int(found[1]) if found else number
            if found:
                arrived.append((number, time.monotonic_ns()))
        writer.close()

    events = [asyncio.Event() for _ in range(count)]
    tasks = [asyncio.create_task(one(event)) for event in events]
    await asyncio.gather(*(event.wait() for event in events))
    print("ready", flush=True)
    await asyncio.gather(*tasks)
    print(sorted(sizes)[len(sizes) // 2])
    for number, at in arrived:
        print(number, at)


def memory(count: int) -> Iterator[Row]:
    """Measure the growth of the resident set of the serving process for each client."""
    _, port = serve_ours()
    before = resident()
    clients = elsewhere("follow", port, count, -1)
    grown = (resident() - before) / count / 1e3
    clients.terminate()
    clients.wait()
    yield alone("memory of a stream in the server", "kB", [grown])


def resident() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


if __name__ == "__main__":
    asyncio.run(follow(*map(int, sys.argv[2:])))
