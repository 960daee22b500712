"""Streams that are read, read slowly, not read, and closed, while 1,000 books a second are published: what stays."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.market_index_http.books import numbered_pair
from tests.service import Service
from tests.waiting import DEADLINE_SECONDS, eventually

PAIRS = 100
SERVER = f"""
import gc, itertools, json, socket, threading, time, tracemalloc
from collections import Counter
from market_index import LiveIndex, MarketIndex, OrderBook
from market_index_cli.server.http_server import Server
from market_index_http import create_app, stream
from tests.market_index_http.books import book

stream.CHECK_SECONDS, stream.PING_SECONDS, stream.SEND_SECONDS = 0.1, 0.5, 2
live = LiveIndex([book(number) for number in range({PAIRS})])
app = create_app(live, stream=True)
KINDS = stream._Client, stream._Audience, stream._Step, stream._Version, MarketIndex, OrderBook

async def observed(scope, receive, send):
    if scope["path"] != "/objects":
        return await app(scope, receive, send)
    gc.collect()
    kinds = Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS))
    text = json.dumps({{"bytes": tracemalloc.get_traced_memory()[0], **kinds}}).encode()
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": text}})

def publish():
    for spot in itertools.count(1):
        for number in range({PAIRS}):
            live.publish(book(number, spot=str(spot)))
            time.sleep(0.001)

tracemalloc.start()
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
threading.Thread(target=publish, daemon=True).start()
Server(observed).run([listener])
"""


@contextmanager
def server() -> Iterator[Service]:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield Service(int(process.stdout.readline()))
        finally:
            process.kill()


async def visit(service: Service, number: int, all_opened: asyncio.Barrier) -> None:
    """Open a stream, and wait for the others. Of four clients one reads, one reads slowly, one stops, one leaves."""
    kind, pair = number % 4, numbered_pair(number % PAIRS)
    # Those that do not keep up ask for all pairs: one version is larger than the buffers.
    query = "" if kind in {1, 2} else f"?pairs={pair}&levels=changed"
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", service.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**12)
    writer.write(b"GET /stream%b HTTP/1.1\r\nHost: test\r\n\r\n" % query.encode())
    try:
        await reader.readuntil(b"event: book")
        await all_opened.wait()
        for _ in range(10):
            if kind == 0:
                await reader.readuntil(b"event: version")
            elif kind == 1:
                assert await reader.read(1_000)
                await asyncio.sleep(0.1)
        if kind == 2:
            await asyncio.Event().wait()
    finally:
        writer.transport.abort()


async def visits(service: Service, count: int, is_over: Callable[[], bool]) -> None:
    """Let clients visit, and wait until it is over, which the clients that stop reading do not decide."""
    all_opened = asyncio.Barrier(count)
    tasks = [asyncio.create_task(visit(service, number, all_opened)) for number in range(count)]
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.gather(*(task for number, task in enumerate(tasks) if number % 4 != 2))
        await asyncio.to_thread(eventually, is_over)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("count", [40, pytest.param(1_000, marks=pytest.mark.thorough)])
def test_memory_returns_to_its_start(count: int):
    def objects() -> dict[str, int]:
        found: dict[str, int] = json.loads(service.request("/objects").body)
        return found

    def is_as_before() -> bool:
        found = objects()
        return found.pop("bytes") < 2 * before["bytes"] and all(n <= before.get(kind, 0) for kind, n in found.items())

    with server() as service:
        asyncio.run(visits(service, 4, lambda: "_Client" not in objects()))  # then caches are filled
        before = objects()
        asyncio.run(visits(service, count, is_as_before))
