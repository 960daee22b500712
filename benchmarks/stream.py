"""The stream of changes: from a publish to the last byte at each client, the bytes of a change, the memory of a client.

A process publishes a book and serves it; another one has all clients, each with a connection of its own. *A bare
asyncio server* writes the prepared event to all connections, and knows nothing of books.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from starlette.applications import Starlette

from benchmarks.books import book, order_book_path, renamed
from benchmarks.measure import ROOT, Group, Row, alone, compared, percentile
from benchmarks.processes import await_listener, elsewhere, line_of
from market_index import LiveIndex, OrderBook, wire
from market_index_http import create_app
from market_index_http import stream as http_stream
from tests.command import started
from tests.nats import spare_port
from tests.service import Restartable

OURS: Final = "ours"
BARE: Final = "a bare asyncio server"
LEVELS: Final = 500
FILE: Final = "benchmarks.stream"

Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""The writer is kept because a stream without one is closed."""


def groups(*, quick: bool) -> dict[str, Group]:
    counts = (1, 100) if quick else (1, 100, 1_000, 10_000)
    found: dict[str, Group] = {
        f"clients_{count}": partial(arrivals, count, 60 if count < 1_000 and not quick else 10) for count in counts
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
    """Measure the milliseconds from a publish to its last byte at the median client."""
    waits: dict[str, list[float]] = {OURS: [], BARE: []}
    sizes: list[float] = []
    with ExitStack() as stack:
        # Each server has a process of its own, and its clients another one. They take turns, publish by publish.
        servers = {kind: stack.enter_context(elsewhere(FILE, "serve", kind)) for kind in waits}
        clients = {
            kind: stack.enter_context(elsewhere(FILE, "follow", line_of(server), count))
            for kind, server in servers.items()
        }
        for one in clients.values():
            line_of(one)  # all are connected
        for number, kind in itertools.product(range(1, publishes + 1), waits):
            sent = int(line_of(servers[kind], number))
            _, arrived, size = map(int, line_of(clients[kind]).split())
            waits[kind].append((arrived - sent) / 1e6)
            sizes += [size] if kind == OURS else []
            time.sleep(max(0.03, count / 20_000))
    work = f"publish to the last byte, {count:,} clients: p50"
    yield compared(work, "ms", waits, OURS, BARE)
    if count == 1:
        yield alone(f"bytes of a change of one level in {LEVELS} a side", "B", sizes)


def serve_elsewhere(kind: str) -> None:
    """Serve, and print the port. Publish each number that is read, and print when."""
    publish, port = serve_ours() if kind == OURS else serve_bare()
    print(port, flush=True)
    for line in sys.stdin:
        print(time.monotonic_ns(), flush=True)
        publish(int(line))


def serve_ours() -> tuple[Callable[[int], object], int]:
    one = made()
    live = LiveIndex([one])
    return lambda number: live.publish(changed(live.current[one.pair], number)), Restartable(
        streaming(live, 20_000)
    ).port


def streaming(live: LiveIndex, limit: int) -> Starlette:
    return create_app(live, routes=[http_stream.Stream(live, limit=limit).route()])


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


async def follow(port: int, count: int) -> None:
    """Open streams, and print `ready`. Print each number that all have, its arrival at the median, and its bytes.

    Return once the server has ended all streams.
    """
    arrivals: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    async def one(reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                text = await reader.readuntil(b"event: version")
                if found := re.search(rb'"spot":"(\d+)"', text):
                    arrived = arrivals[int(found[1])]
                    arrived.append((time.monotonic_ns(), len(text)))
                    if len(arrived) == count:
                        print(int(found[1]), arrived[count // 2][0], arrived[0][1], flush=True)

    opened = await open_streams(port, ["?levels=changed"] * count)
    print("ready", flush=True)
    await asyncio.gather(*(one(reader) for reader, _ in opened))


async def open_streams(port: int, queries: Sequence[str]) -> list[Stream]:
    """Open streams, a hundred at a time, and read until each has its first version."""
    connecting = asyncio.Semaphore(100)

    async def one(query: str) -> Stream:
        async with connecting:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
            writer.write(b"GET /stream%b HTTP/1.1\r\nHost: x\r\n\r\n" % query.encode())
            await reader.readuntil(b"event: version")
            return reader, writer

    return await asyncio.gather(*map(one, queries))


def memory(count: int) -> Iterator[Row]:
    """Measure the growth of the resident set of the serving process for each client."""
    _, port = serve_ours()
    before = resident()
    with elsewhere(FILE, "follow", port, count) as clients:
        line_of(clients)
        yield alone("memory of a stream in the server", "kB", [(resident() - before) / count / 1e3])


def beside(count: int) -> Iterator[Row]:
    """Measure a request for a book while 1,000 books a second change, and each stream follows one of many pairs.

    A quarter of the clients read, one reads slowly, one stops reading, and one disconnects and connects again.
    """
    found = [renamed(book(random.Random(12), 50), number) for number in range(count)]
    live = LiveIndex(found)
    port = Restartable(streaming(live, count)).port
    is_over = threading.Event()

    def publish() -> None:
        for number in itertools.count(1):
            for one in found[number % 20 :: 20] if not is_over.wait(count / 20 / 1_000) else ():
                live.publish(changed(live.current[one.pair], number))
            if is_over.is_set():
                return

    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    path = order_book_path(found[0])
    waits: dict[str, list[float]] = {"without streams": [], "beside streams": []}
    for _ in range(3):
        waits["without streams"].append(latency(port, path))
        with elsewhere(FILE, "vary", port, *[f"?pairs={one.pair}" for one in found]) as clients:
            line_of(clients)
            waits["beside streams"].append(latency(port, path))
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
            port = spare_port()
            with started(
                Path(os.devnull), sys.executable, "-m", *command, "--port", port, cwd=ROOT, stdout=subprocess.DEVNULL
            ) as server:
                await_listener(port)
                with elsewhere(FILE, "follow", port, count) as clients:
                    line_of(clients)
                    begun = time.monotonic()
                    server.end()
                    seconds.append(time.monotonic() - begun)
        yield alone(f"SIGTERM of {name} with {count:,} streams", "s", seconds)


app: Final = streaming(LiveIndex([made()]), 20_000)
"""What plain uvicorn serves."""


async def vary(port: int, queries: Sequence[str]) -> None:
    """Open streams, and print `ready`. Of four clients one reads, one reads slowly, one stops, one connects again."""

    async def one(number: int, stream: Stream) -> None:
        kind, (reader, writer) = number % 4, stream
        while kind != 2 and await reader.read(2**16 if kind == 0 else 2**10):
            if kind:
                await asyncio.sleep(1)
            if kind == 3:
                writer.close()
                [(reader, writer)] = await open_streams(port, [queries[number]])
        await asyncio.Event().wait()

    opened = await open_streams(port, queries)
    print("ready", flush=True)
    await asyncio.gather(*itertools.starmap(one, enumerate(opened)))


def resident() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


if __name__ == "__main__":
    task, where, *rest = sys.argv[1:]
    if task == "serve":
        serve_elsewhere(where)
    else:
        asyncio.run(follow(int(where), int(rest[0])) if task == "follow" else vary(int(where), rest))
