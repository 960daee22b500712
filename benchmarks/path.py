"""The whole path: from a publish, through a store and `market-index serve`, to the bytes that a client receives.

A publisher, `market-index serve` and a client that requests a pair with `If-None-Match`, {POLL_SECONDS * 1e3:g} ms
after each response. A publish has arrived with the first body that contains it or a later one. *{POLL}* is the
pause of the client and one round trip. At {RATES[-1]:,} per second the publisher may be late.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from attrs import frozen

from benchmarks.books import books
from benchmarks.measure import Group, Row, alone, compared, percentile
from benchmarks.seen import ROOT, ended
from market_index_feeds import open_store
from tests.nats import served
from tests.waiting import eventually

COMMAND: Final = Path(sys.executable).with_name("market-index")
PAIRS: Final = 100
RATES: Final = (10, 100, 1_000)
POLL_SECONDS: Final = 0.001
POLL: Final = "one poll of the client (floor)"
POLLING_SECONDS: Final = 60


def groups(*, quick: bool) -> dict[str, Group]:
    return {medium: partial(rows, medium, quick=quick) for medium in ("file", "NATS")}


def rows(medium: str, *, quick: bool) -> Iterator[Row]:
    rounds, publishes = (3, 40) if quick else (9, 100)
    measured: dict[int, list[Round]] = {rate: [] for rate in RATES}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as name, ExitStack() as stack:
        folder = Path(name)
        url = f"{stack.enter_context(served(folder)).url}/books" if medium == "NATS" else str(folder / "market.db")
        held = books(PAIRS, 50, seed=11)
        with open_store(url) as store:
            store.publish(*held)
        port = stack.enter_context(serving(url, folder))
        first = 1
        for _ in range(rounds):
            for rate in RATES:
                # At least half a second, at least so many publishes.
                count = max(publishes, rate // 2)
                measured[rate].append(one_round(url, port, rate, first, count))
                first += count
    for rate, each in measured.items():
        yield from rows_of(medium, rate, each)


@frozen
class Round:
    """The milliseconds from each publish to its bytes and of each poll, and the rate."""

    path: list[float]
    polls: list[float]
    rate: float


def rows_of(medium: str, rate: int, each: list[Round]) -> Iterator[Row]:
    work = f"publish to bytes received, {medium}, {rate:,} per second"
    for percent in (50, 99):
        ours = [percentile(one.path, percent) for one in each]
        polls = [percentile(one.polls, percent) for one in each]
        yield alone(f"{work}: p{percent}", "ms", ours)
        yield compared(f"{work}: p{percent}", "ms", {"ours": ours, POLL: polls}, "ours", POLL)
    yield alone(f"{work}: publishes reached", "/s", [one.rate for one in each])


def one_round(url: str, port: int, rate: int, first: int, count: int) -> Round:
    """Publish books at a rate while a client polls, and match publishes with responses."""
    client = started(CLIENT, port, first + count - 1)
    publisher = started(PUBLISHER, url, rate, first, count)
    sent = [tuple(map(int, line.split())) for line in ended(publisher).splitlines()]
    *arrivals, polls = ended(client).splitlines()
    received = [tuple(map(int, line.split())) for line in arrivals]
    path = list(waits(sent, received))
    seconds = (sent[-1][1] - sent[0][1]) / 1e9
    return Round(path, [int(poll) / 1e6 for poll in polls.split()], (len(sent) - 1) / seconds)


def waits(sent: Sequence[tuple[int, ...]], received: Iterable[tuple[int, ...]]) -> Iterator[float]:
    """Yield the milliseconds from each publish to the first body that has it or a later one.

    Raises:
        RuntimeError: the client did not receive the last one.
    """
    arrivals = iter(received)
    spot, at = 0, 0
    for number, began in sent:
        while spot < number:
            following = next(arrivals, None)
            if following is None:
                raise RuntimeError(f"publish {number} did not arrive")
            spot, at = following
        yield (at - began) / 1e6


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process and wait until it is ready."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


@contextmanager
def serving(feed: str, folder: Path, *options: str) -> Iterator[int]:
    """Serve a feed with the command, and yield the port."""
    output, command = folder / "output", [str(COMMAND), "serve", feed, "--port", "0", *options]
    with output.open("wb") as file, subprocess.Popen(command, stderr=file, stdout=file) as process:
        try:
            eventually(lambda: re.search(r"listening on \S+:\d+", output.read_text()))
            found = re.search(r"listening on \S+:(\d+)", output.read_text())
            assert found
            yield int(found[1])
        finally:
            process.terminate()


PUBLISHER: Final = f"""
import sys, time
from market_index_feeds import open_store
from benchmarks.books import books
url, rate, first, count = sys.argv[1], *map(int, sys.argv[2:])
one = books({PAIRS}, 50, seed=11)[0]
sent = []
with open_store(url) as store:
    print("ready", flush=True)
    due = time.monotonic()
    for number in range(first, first + count):
        following = one.apply(spot=str(number))
        time.sleep(max(due - time.monotonic(), 0))
        # The first one warms up: it finds out what the server has.
        if number > first:
            sent.append((number, time.monotonic_ns()))
        store.publish(following)
        due = (time.monotonic() if number == first else due) + 1 / rate
for number, at in sent:
    print(number, at)
"""

CLIENT: Final = """
import sys
from benchmarks.path import poll
poll(*map(int, sys.argv[1:]))
"""


def poll(port: int, last: int) -> None:
    """Poll until the last spot price arrives. Print when each arrived, then how long each poll took (ns)."""
    one = books(PAIRS, 50, seed=11)[0]
    path = f"/trading-view/order-book?base={one.pair.base}&quote={one.pair.quote}"
    etag, arrivals, polls = b"", [], []
    deadline = time.monotonic() + POLLING_SECONDS
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        spot = -1
        print("ready", flush=True)
        while spot != last and time.monotonic() < deadline:
            begun = time.monotonic_ns()
            known = b"If-None-Match: %s\r\n" % etag if etag else b""
            connection.sendall(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n" % (path.encode(), known))
            head, body = response(connection)
            now = time.monotonic_ns()
            if body:
                (etag,) = re.findall(rb"\netag: ([^\r]+)", head)
                # The book before the first publish has a fraction as its spot price.
                found = re.search(rb'"spot":"(\d+)"', body)
                spot = int(found[1]) if found else spot
                arrivals.append((spot, now))
            time.sleep(POLL_SECONDS)
            polls.append(time.monotonic_ns() - begun)
    for number, at in arrivals:
        print(number, at)
    print(*polls)


def response(connection: socket.socket) -> tuple[bytes, bytes]:
    """Return the head and the body of a response."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"\ncontent-length: (\d+)", head)
    while length and not head.startswith(b"HTTP/1.1 304") and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head, body
