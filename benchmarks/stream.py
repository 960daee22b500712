"""The stream of changes: from a publish to the last byte at each client, the bytes of a change, the memory of a client.

One process publishes a book and serves it; another one has all clients, each with a connection of its own. *A bare
asyncio server* writes the prepared event to all connections, and knows nothing of books.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import random
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.books import book, renamed
from benchmarks.measure import Group, Row, alone, compared, percentile
from benchmarks.seen import ROOT
from market_index import LiveIndex, OrderBook, wire
from market_index_cli.server.http_server import Server
from market_index_cli.server.listeners import bind
from market_index_http import create_app
from market_index_http.app import MarketIndexApp

OURS: Final = "ours"
BARE: Final = "a bare asyncio server"
LEVELS: Final = 500


def groups(*, quick: bool) -> dict[str, Group]:
    counts = (1, 100) if quick else (1, 100, 1_000, 10_000)
    found: dict[str, Group] = {
        f"clients_{count}": partial(arrivals, count, 20 if quick or count > 100 else 60) for count in counts
    }
    many = 200 if quick else 1_000
    return found | {
        "memory": partial(memory, many),
        "beside": partial(beside, many),
        "shutdown": partial(shutdown, many),
    }


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
        time.sleep(max(0.03, count / 5_000))
        sent[number] = time.monotonic_ns()
        publish(number)
    size, *lines = clients.communicate(timeout=120)[0].splitlines()
    return sent, [(int(number), int(at)) for number, at in map(str.split, lines)], float(size)


def elsewhere(task: str, *arguments: object) -> subprocess.Popen[str]:
    """Start the clients in another process, and wait until they are connected."""
    allow_descriptors()
    command = [sys.executable, "-m", "benchmarks.stream", task, *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def serve(kind: str) -> tuple[Callable[[int], object], int]:
    """Serve in threads of this process. Return what publishes a number, and the port."""
    return serve_ours() if kind == OURS else serve_bare()


def serve_ours() -> tuple[Callable[[int], object], int]:
    one = made()
    live = LiveIndex([one])
    return lambda number: live.publish(changed(live.current[one.pair], number)), served(create_app(live, stream=20_000))


def served(app: MarketIndexApp) -> int:
    """Serve an app in a thread, and return its port."""
    allow_descriptors()
    listener = bind("127.0.0.1", 0)
    server = Server(app)
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    port: int = listener.getsockname()[1]
    await_listener(port)
    return port


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

    connecting = asyncio.Semaphore(100)

    async def one(is_ready: asyncio.Event) -> None:
        async with connecting:
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


def beside(count: int) -> Iterator[Row]:
    """Measure a request for a book while each stream follows one of many pairs and 1,000 books a second change."""
    found = [renamed(book(random.Random(12), 50), number) for number in range(count)]
    live = LiveIndex(found)
    port = served(create_app(live, stream=count))
    is_over = threading.Event()

    def publish() -> None:
        for number in itertools.count(1):
            for one in found[number % 20 :: 20] if not is_over.wait(count / 20 / 1_000) else ():
                live.publish(changed(live.current[one.pair], number))
            if is_over.is_set():
                return

    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    path = f"/trading-view/order-book?base={found[0].pair.base}&quote={found[0].pair.quote}"
    waits: dict[str, list[float]] = {"without streams": [], "beside streams": []}
    for _ in range(3):
        waits["without streams"].append(latency(port, path))
        clients = elsewhere("open", port, count, *[one.pair for one in found])
        waits["beside streams"].append(latency(port, path))
        clients.terminate()
        clients.wait()
    is_over.set()
    publisher.join()
    yield compared(f"a request beside {count:,} streams: p50", "ms", waits, "beside streams", "without streams")


def latency(port: int, path: str) -> float:
    """Return the median milliseconds of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    found = []
    for _ in range(500):
        begun = time.monotonic_ns()
        connection.request("GET", path)
        connection.getresponse().read()
        found.append((time.monotonic_ns() - begun) / 1e6)
        time.sleep(0.002)
    connection.close()
    return percentile(found, 50)


def shutdown(count: int) -> Iterator[Row]:
    """Measure the seconds from SIGTERM to the end of `serve`, and of an app under plain uvicorn, with open streams."""
    for name, command in {
        "market-index serve": ["market_index_cli", "serve", "sample:"],
        "uvicorn": ["uvicorn", "benchmarks.stream:app"],
    }.items():
        seconds = []
        for _ in range(3):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            allow_descriptors()
            server = subprocess.Popen(
                [sys.executable, "-m", *command, "--port", str(port)],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                await_listener(port)
                clients = elsewhere("open", port, count)
                begun = time.monotonic()
                server.terminate()
                server.wait(60)
                seconds.append(time.monotonic() - begun)
                clients.wait(60)
            finally:
                server.kill()
        yield alone(f"SIGTERM of {name} with {count:,} streams", "s", seconds)


def await_listener(port: int) -> None:
    """Wait until a server accepts connections."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens at port {port}")


app: Final = create_app(LiveIndex([made()]), stream=20_000)
"""What plain uvicorn serves."""


async def keep_open(port: int, count: int, pairs: Sequence[str]) -> None:
    """Open streams, each of one of the pairs, or of all without pairs. Print `ready`, and read until they end."""

    async def one(number: int) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        query = f"?pairs={pairs[number % len(pairs)]}" if pairs else ""
        writer.write(b"GET /stream%b HTTP/1.1\r\nHost: x\r\n\r\n" % query.encode())
        await reader.readuntil(b"event: version")
        return reader

    async def drain(reader: asyncio.StreamReader) -> None:
        while await reader.read(2**16):
            pass

    readers = [await one(number) for number in range(count)]
    print("ready", flush=True)
    await asyncio.gather(*map(drain, readers))


def allow_descriptors() -> None:
    """Raise the limit of open files of this process and of those that it starts."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def resident() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


if __name__ == "__main__":
    task, port, count, *rest = sys.argv[1:]
    if task == "follow":
        asyncio.run(follow(int(port), int(count), int(rest[0])))
    else:
        asyncio.run(keep_open(int(port), int(count), rest))
