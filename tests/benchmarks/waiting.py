"""Clients that wait for a change: from a publish to the last byte at each client, and what waiting costs a publish."""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import nats as nats_client
from attrs import define, field, frozen
from nats.aio.msg import Msg

from market_index import LiveIndex, OrderBook, wire
from market_index_cli.server.http_server import Server
from market_index_cli.server.listeners import bind
from market_index_http import create_app
from tests.benchmarks.books import books
from tests.benchmarks.figures import Row, compared, percentile
from tests.benchmarks.report import Group
from tests.benchmarks.seen import ROOT
from tests.nats import served as nats_server

PAIRS: Final = 100
CLIENTS: Final = (1, 100, 10_000)
PUBLISHES: Final = {1: (100, 0.02), 100: (40, 0.1), 10_000: (4, 8.0)}
"""How many publishes, and the seconds between them, by the number of clients."""

POLL_SECONDS: Final = 2.0
EVENTS: Final = "a bare asyncio server with server-sent events"
POLLING: Final = f"polling every {POLL_SECONDS:g} s"
NATS: Final = "the bare client of NATS"

TITLE: Final = "Waiting for a change"
ABOUT: Final = f"""
One process publishes a book of 50 levels and serves it with the server of the command. Another one has all clients,
each with a connection of its own. A time is from the publish to the last byte at one client, over all clients and
publishes.

- *{EVENTS}* writes the encoded book to all connections, and parses no further request. With many clients, half
  of the time of ours is the writes, because each wakes its client.
- *{POLLING}*: the same clients without `Prefer`, each at another moment.
- *{NATS}*: a message with the encoded book, and a subscription of each connection, through a server of its own.

The cost of a publish is that of `LiveIndex.publish` of a pair for which no client waits.
"""


def groups(*, quick: bool) -> dict[str, Group]:
    counts = CLIENTS[:2] if quick else CLIENTS
    found: dict[str, Group] = {f"clients_{count}": partial(arrivals, count, quick=quick) for count in counts}
    return found | {"publish": partial(publishing, 1_000 if quick else 10_000, quick=quick)}


def arrivals(count: int, *, quick: bool) -> Iterator[Row]:
    peers = ["wait", "events"] if count == max(CLIENTS) else ["wait", "events", "nats"]
    rounds: dict[str, list[list[float]]] = {name: [] for name in peers}
    for _ in range(2 if quick else 5):
        for name, each in rounds.items():
            each.append(one_round(name, count))
    if count == CLIENTS[1]:
        rounds["poll"] = [one_round("poll", count)]
    names = {"wait": "ours", "events": EVENTS, "nats": NATS, "poll": POLLING}
    work = f"publish to last byte, {count:,} client{'s' if count > 1 else ''}"
    for percent in (50, 99):
        times = {names[name]: [percentile(one, percent) for one in each] for name, each in rounds.items()}
        for peer in times.keys() - {"ours"}:
            at_most = 1.5 if (peer, percent) == (EVENTS, 50) else None
            mine = times["ours"][: len(times[peer])]
            yield compared(
                f"{work}: p{percent}",
                "ms",
                {"ours": mine, peer: times[peer]},
                "ours",
                peer,
                at_most=at_most,
                headline=peer == EVENTS and percent == 50,
            )


def one_round(kind: str, count: int) -> list[float]:
    """Return the milliseconds from each publish to each client."""
    publishes, seconds = PUBLISHES[count]
    if kind == "poll":
        publishes, seconds = 5, POLL_SECONDS
    with ExitStack() as stack:
        server = stack.enter_context(started("serve", kind, count))
        assert server.stdin
        assert server.stdout
        clients = stack.enter_context(started("follow", kind, server.stdout.readline().strip(), count, publishes))
        assert clients.stdout
        assert clients.stdout.readline() == "ready\n"
        # Those that have just received their first book still have to wait for the next one.
        time.sleep(min(10 * seconds, 6))
        server.stdin.write(f"{publishes} {seconds}\n")
        server.stdin.flush()
        sent = [int(server.stdout.readline()) for _ in range(publishes)]
        received = [tuple(map(int, line.split())) for line in clients.stdout]
    return [(at - sent[number - 1]) / 1e6 for number, at in received]


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.benchmarks.waiting", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin
            process.stdin.close()  # the process that publishes waits for it, and then ends its own server
            process.stdin = None
            if arguments[0] == "follow":
                process.terminate()


def publishing(count: int, *, quick: bool) -> Iterator[Row]:
    """Measure publishes into another pair, with and without waiting clients."""
    times: dict[str, list[float]] = {"ours": [], "no client waits": []}
    for _ in range(3 if quick else 7):
        for name, clients in (("ours", count), ("no client waits", 0)):
            with started("serve", "other", count) as server, ExitStack() as stack:
                assert server.stdin
                assert server.stdout
                port = server.stdout.readline().strip()
                if clients:
                    following = stack.enter_context(started("follow", "wait", port, clients, 1))
                    assert following.stdout
                    assert following.stdout.readline() == "ready\n"
                    time.sleep(2)
                server.stdin.write("1000 0.001\n")
                server.stdin.flush()
                took = [int(server.stdout.readline()) for _ in range(1_000)]
                times[name].append(statistics.median(took) / 1e3)
    yield compared(
        f"publish into another pair, {count:,} clients wait, 1,000 per second: p50",
        "µs",
        times,
        "ours",
        "no client waits",
        at_most=1.2,
    )


def serve(kind: str, count: int) -> None:
    held = books(PAIRS, 50, seed=11)
    live = LiveIndex(held)
    with ExitStack() as stack:
        if kind == "events":
            publish, port = serve_events(held[0])
        elif kind == "nats":
            publish, port = serve_nats(stack)
        else:
            publish, port = serve_http(live, count)
        print(port, flush=True)
        publish_when_asked(publish, kind, held)


def publish_when_asked(publish: Callable[[OrderBook], object], kind: str, held: list[OrderBook]) -> None:
    """Publish as often as the line on standard input says. Print when each began, or how long it took."""
    publishes, seconds = sys.stdin.readline().split()
    other = held[1] if kind == "other" else held[0]
    due = time.monotonic()
    for number in range(1, int(publishes) + 1):
        due += float(seconds)
        time.sleep(max(due - time.monotonic(), 0))
        following = other.apply(spot=str(number))
        began = time.monotonic_ns()
        publish(following)
        print(time.monotonic_ns() - began if kind == "other" else began, flush=True)
    sys.stdin.readline()


def serve_http(live: LiveIndex, count: int) -> tuple[Callable[[OrderBook], object], int]:
    app = create_app(live, max_wait=600, max_waiting=2 * count)
    listener = bind("127.0.0.1", 0)
    server = Server(app, max_connections=2 * count + 100, on_shutdown=app.end_waits)
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return live.publish, listener.getsockname()[1]


def serve_events(first: OrderBook) -> tuple[Callable[[OrderBook], object], int]:
    """Serve the encoded book to all connections: what no server of this design can avoid."""
    transports: list[asyncio.WriteTransport] = []
    loop = asyncio.new_event_loop()

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            del data
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            self.transport.write(event(first))
            transports.append(self.transport)

    def write(content: bytes) -> None:
        for transport in transports:
            transport.write(content)

    started = loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    server = loop.run_until_complete(started)
    threading.Thread(target=loop.run_forever, daemon=True).start()
    port = server.sockets[0].getsockname()[1]
    return (lambda book: loop.call_soon_threadsafe(write, event(book))), port


def event(book: OrderBook) -> bytes:
    return b"data: " + wire.order_book_to_json(book) + b"\n\n"


def serve_nats(stack: ExitStack) -> tuple[Callable[[OrderBook], object], int]:
    server = stack.enter_context(nats_server(Path(stack.enter_context(TemporaryDirectory()))))
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    connection = asyncio.run_coroutine_threadsafe(nats_client.connect(server.url), loop).result()
    stack.callback(lambda: asyncio.run_coroutine_threadsafe(connection.close(), loop).result())

    async def send(content: bytes) -> None:
        await connection.publish("book", content)
        await connection.flush()

    def publish(book: OrderBook) -> None:
        asyncio.run_coroutine_threadsafe(send(wire.order_book_to_json(book)), loop)

    return publish, int(server.url.rpartition(":")[2])


@frozen
class Following:
    """What all clients share: the path, the number of the last publish, and when each one arrived."""

    kind: str
    last: int
    path: bytes
    arrived: list[tuple[int, int]] = field(factory=list)
    """The number of a publish and its time in nanoseconds, for each client."""

    def add(self, content: bytes) -> bool:
        """Record a book. Return whether it is the last one."""
        found = re.search(rb'"spot":"(\d+)"', content)
        if found is None:
            return False
        self.arrived.append((int(found[1]), time.monotonic_ns()))
        return int(found[1]) == self.last


@define(eq=False)
class Connection(asyncio.Protocol):
    """A client of HTTP: it waits, polls, or reads events."""

    following: Following
    ended: asyncio.Future[None]
    ready: asyncio.Future[None]
    etag: bytes = b""
    received: bytes = b""
    transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport
        self.request()

    def request(self) -> None:
        known = b"If-None-Match: %s\r\n" % self.etag if self.etag else b""
        prefer = b"Prefer: wait=600\r\n" if self.following.kind == "wait" else b""
        assert self.transport
        self.transport.write(b"GET %s HTTP/1.1\r\nHost: x\r\n%s%s\r\n" % (self.following.path, known, prefer))

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.following.kind == "events":
            while b"\n\n" in self.received:
                one, _, self.received = self.received.partition(b"\n\n")
                self.use(one)
            return
        head, mark, body = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"\ncontent-length: (\d+)", head)
        if not mark or (length and len(body) < int(length[1])):
            return
        self.received = b""
        self.use(body)
        self.etag = head.partition(b"etag: ")[2].partition(b"\r")[0]
        if self.following.kind == "poll":
            asyncio.get_running_loop().call_later(POLL_SECONDS, self.request)
        else:
            self.request()

    def use(self, body: bytes) -> None:
        if not self.ready.done():
            self.ready.set_result(None)
        if self.following.add(body) and not self.ended.done():
            self.ended.set_result(None)


async def follow(kind: str, port: int, count: int, last: int) -> None:
    pair, loop = books(PAIRS, 50, seed=11)[0].pair, asyncio.get_running_loop()
    following = Following(kind, last, f"/trading-view/order-book?base={pair.base}&quote={pair.quote}".encode())
    ended: list[Awaitable[None]] = []
    for number in range(count):
        end, ready = loop.create_future(), loop.create_future()
        ended.append(end)
        if kind == "nats":
            connection = await nats_client.connect(f"nats://127.0.0.1:{port}")
            await connection.subscribe("book", cb=partial(subscribed, following, end))
            await connection.flush()
        else:
            await loop.create_connection(partial(Connection, following, end, ready), "127.0.0.1", port)
            if number % 100 == 99 or number == count - 1:
                await ready
        if kind == "poll":
            await asyncio.sleep(POLL_SECONDS / count)
    print("ready", flush=True)
    await asyncio.gather(*ended)
    for number, at in following.arrived:
        print(number, at)


async def subscribed(following: Following, end: asyncio.Future[None], message: Msg) -> None:
    if following.add(message.data):
        end.set_result(None)


def main() -> None:
    task, kind, *rest = sys.argv[1:]
    if task == "serve":
        serve(kind, int(rest[0]))
    else:
        port, count, last = map(int, rest)
        asyncio.run(follow(kind, port, count, last))


if __name__ == "__main__":
    main()
