"""Attacks of hostile clients on a real `market-index serve`.

`python -m tests.faults.hostile_clients` prints the effect of each attack. `--command PATH` attacks the command of
another installation, such as an earlier version.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPException
from math import inf
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Final

from attrs import define, field, frozen

from market_index import OrderBook, wire
from market_index_feeds import Store, open_store
from tests.command import COMMAND, Running
from tests.market_index_feeds.made_up import book, pair
from tests.service import Client
from tests.waiting import DEADLINE_SECONDS, eventually

PAIR_LIST: Final = "/trading-view/pair-list"
HEAD: Final = f"GET {PAIR_LIST} HTTP/1.1\r\nHost: test\r\n".encode()
MIB: Final = 1024 * 1024


@frozen
class Target:
    """A store, and the command that serves it."""

    running: Running
    store: Store
    port: int

    def memory_mib(self, field: str = "VmRSS") -> float:
        """Return the memory of the process in MiB; with VmHWM its peak."""
        return memory_mib(self.running.process.pid, field)

    def publish(self, spot: int) -> None:
        self.store.publish(book(1, spot))

    def shows(self, client: Client, spot: int) -> bool:
        return bool(client.request(PAIR_LIST).json["pairs"][0]["last_spot"] == str(spot))


def memory_mib(process: int | str = "self", field: str = "VmRSS") -> float:
    """Return the memory of a process in MiB; with VmHWM its peak."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) / 1024


@contextmanager
def target(*books: OrderBook, command: Path = COMMAND, open_files: int = 1024) -> Iterator[Target]:
    """Serve a store with these books, with a limit of open files."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        store = stack.enter_context(open_store(f"{folder}/market.db"))
        store.publish(*(books or [book(1, 1)]))
        running = stack.enter_context(serving(store.name, Path(folder, "log"), command, open_files))
        yield Target(running, store, running.service.port)


@contextmanager
def serving(feed: str, log: Path, command: Path = COMMAND, open_files: int = 1024) -> Iterator[Running]:
    """Serve a feed, with a limit of open files."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            ["bash", "-c", f'ulimit -n {open_files}; exec "$0" serve "$1" --port 0', command, feed], stderr=errors
        )
    try:
        yield Running(process, log)
    finally:
        process.kill()
        process.wait(DEADLINE_SECONDS)


@define
class Observer:
    """Another client, which measures the time of each of its requests during an attack."""

    client: Client
    target: str = PAIR_LIST
    milliseconds: list[float] = field(factory=list)

    @contextmanager
    def observing(self) -> Iterator[None]:
        is_over = Event()

        def observe() -> None:
            while not is_over.is_set():
                start = time.perf_counter()
                try:
                    self.client.request(self.target)
                except (OSError, HTTPException):
                    # The connection is lost.
                    self.milliseconds.append(inf)
                    return
                self.milliseconds.append(1000 * (time.perf_counter() - start))
                is_over.wait(0.001)

        thread = Thread(target=observe)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    @property
    def figures(self) -> str:
        return f"another client: p50 {median(self.milliseconds):.2f} ms, longest {max(self.milliseconds):.0f} ms"


def sent_until_closed(client: Client, piece: bytes, most: int) -> int:
    """Send a piece repeatedly until the server closes the connection. Return the number of bytes sent."""
    sent = 0
    with suppress(ConnectionError):
        while sent < most:
            client.socket.sendall(piece)
            sent += len(piece)
    return sent


def half_open(port: int, count: int, stack: ExitStack) -> None:
    """Open connections and send half a request on each. The server may close them."""
    for _ in range(count):
        connection = stack.enter_context(closing(socket.socket()))
        connection.settimeout(DEADLINE_SECONDS)
        with suppress(ConnectionError):
            connection.connect(("127.0.0.1", port))
            connection.sendall(HEAD)


def burst(port: int, count: int, stack: ExitStack) -> None:
    """Open connections at the same time. The server may close them."""
    for _ in range(count):
        connection = stack.enter_context(closing(socket.socket()))
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))


def head_bytes(command: Path, piece: bytes, most: int) -> str:
    with target(command=command) as attacked, closing(Client(attacked.port)) as honest:
        observer = Observer(honest)
        with observer.observing(), closing(Client(attacked.port)) as hostile:
            hostile.socket.sendall(HEAD)
            sent = sent_until_closed(hostile, piece, most)
        return f"{sent / MIB:.1f} MiB sent, peak memory {attacked.memory_mib('VmHWM'):.0f} MiB; {observer.figures}"


def many_fields(command: Path) -> str:
    """300 MiB of header fields on one connection."""
    return head_bytes(command, b"X: %s\r\n" % (b"x" * 1000) * 64, 300 * MIB)


def one_field(command: Path) -> str:
    """One header field of 100 MiB."""
    return head_bytes(command, b"x" * 65536, 100 * MIB)


def half_sent(command: Path) -> str:
    """200 half-sent requests to a process that may open 128 files."""
    with target(command=command, open_files=128) as attacked, ExitStack() as stack:
        half_open(attacked.port, 200, stack)
        attacked.publish(2)
        deadline = time.monotonic() + 9
        while time.monotonic() < deadline:
            # A new connection: one that is idle makes room for the others.
            with closing(Client(attacked.port)) as honest, suppress(OSError, HTTPException):
                if attacked.shows(honest, 2):
                    return "a change is shown"
            time.sleep(0.1)
        return "a change is not shown within 9 s"


def many_connections(command: Path) -> str:
    """1,000 idle and half-open connections to a process that may open 1,024 files."""
    with target(command=command) as attacked, ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(closing(Client(attacked.port)))
        half_open(attacked.port, 500, stack)
        took, statuses = [], set()
        for _ in range(50):
            start = time.perf_counter()
            with closing(Client(attacked.port)) as honest:
                statuses.add(honest.request("/healthz").status)
            took.append(1000 * (time.perf_counter() - start))
        with closing(Client(attacked.port)) as honest:
            attacked.publish(2)
            eventually(lambda: attacked.shows(honest, 2))
        return f"a change is shown; /healthz {statuses}: median {median(took):.1f} ms, longest {max(took):.0f} ms"


def many_at_once(command: Path) -> str:
    """1,000 connections at the same time to a process that may open 128 files."""
    with target(command=command, open_files=128) as attacked, ExitStack() as stack:
        burst(attacked.port, 1000, stack)
        start = time.perf_counter()
        with closing(Client(attacked.port)) as honest:
            status = honest.request("/healthz").status
        took = 1000 * (time.perf_counter() - start)
        failed = attacked.running.stderr.count("Too many open files")
        return f"/healthz {status} after {took:.0f} ms; {failed:,} errors of too many open files"


def spellings(command: Path) -> str:
    """500 requests per second with identifiers in upper case, for a book of 500 levels a side."""
    levels = [(f"0.{number:06}", number) for number in range(1, 501)]
    deep = OrderBook.from_levels(pair(0xABCD), bids=levels, asks=[(f"1{price[1:]}", 1) for price, _ in levels])
    plain = f"/trading-view/order-book?base={deep.pair.base}&quote=ADA"
    upper = plain.replace("abcd", "ABCD")
    with target(deep, command=command) as attacked, closing(Client(attacked.port)) as hostile:

        def seconds(request_target: str) -> float:
            start = time.perf_counter()
            for _ in range(300):
                assert hostile.request(request_target).status == 200
            return time.perf_counter() - start

        rounds = [(seconds(plain), seconds(upper)) for _ in range(5)]
        ratio = median(respelled / cached for cached, respelled in rounds)
        with closing(Client(attacked.port)) as honest, (observer := Observer(honest, plain)).observing():
            start = time.monotonic()
            for number in range(1500):
                hostile.request(upper)
                time.sleep(max(0, start + number / 500 - time.monotonic()))
        return f"{ratio:.1f} times the time of a cached response; {observer.figures}"


def huge_book(command: Path) -> str:
    """The first request for a book of 13 MB."""
    levels = [(f"0.{number:012}", 2**60 + number) for number in range(1, 100_001)]
    huge = OrderBook.from_levels(pair(2), bids=levels, asks=[(f"1{price[1:]}", amount) for price, amount in levels])
    with target(book(1, 1), huge, command=command) as attacked, ExitStack() as stack:
        reader, honest = (stack.enter_context(closing(Client(attacked.port))) for _ in range(2))
        observer = Observer(honest)
        with observer.observing():
            body = reader.request(f"/trading-view/order-book?base={huge.pair.base}&quote=ADA").body
        assert body == wire.order_book_to_json(huge)
        return f"{len(body) / 1e6:.1f} MB; {observer.figures}"


def unread(command: Path, *, publishes: bool) -> str:
    """Request a book of 15 MB on 100 sockets, with identifiers in upper case, and read nothing."""
    levels = [(f"0.{number:012}", 2**60 + number) for number in range(1, 115_001)]
    huge = OrderBook.from_levels(
        pair(0xABCD), bids=levels, asks=[(f"1{price[1:]}", amount) for price, amount in levels]
    )
    upper = f"/trading-view/order-book?base={huge.pair.base}&quote=ADA".replace("abcd", "ABCD")
    with target(huge, command=command) as attacked, ExitStack() as stack:
        reader, honest = (stack.enter_context(closing(Client(attacked.port))) for _ in range(2))
        size = len(reader.request(upper).body)
        before, observer = attacked.memory_mib(), Observer(honest, "/healthz")
        with observer.observing():
            for number in range(1, 101):
                hostile = stack.enter_context(closing(Client(attacked.port)))
                hostile.socket.sendall(f"GET {upper} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
                assert hostile.socket.recv(1) == b"H"
                if publishes:
                    revision = attacked.store.publish(huge.apply(bids=[("0.000000000001", number)])).revision
                    eventually(lambda: reader.request("/healthz").json["revision"] == revision)  # noqa: B023  # at once
        return (
            f"{size / 1e6:.1f} MB; {attacked.memory_mib() - before:.0f} MiB more memory; /healthz: {observer.figures}"
        )


def unread_spellings(command: Path) -> str:
    """100 clients that do not read a book of 15 MB, which they requested in upper case."""
    return unread(command, publishes=False)


def unread_versions(command: Path) -> str:
    """The same with a publish between the requests. Each version is decoded, which takes a second by itself."""
    return unread(command, publishes=True)


ATTACKS: Final[tuple[Callable[[Path], str], ...]] = (
    many_fields,
    one_field,
    half_sent,
    many_connections,
    many_at_once,
    spellings,
    huge_book,
    unread_spellings,
    unread_versions,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", type=Path, default=COMMAND)
    parser.add_argument("--only", choices=[attack.__name__ for attack in ATTACKS])
    options = parser.parse_args()
    for attack in ATTACKS:
        if options.only in {None, attack.__name__}:
            print(f"{attack.__doc__}\n    {attack(options.command)}", flush=True)


if __name__ == "__main__":
    main()
