"""Hostile upstreams of an HTTP feed. `python -m tests.faults.upstreams` prints the effect of each on a reader."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Final

from market_index import MarketIndex, wire
from tests.market_index_feeds.made_up import book

BOOK: Final = wire.order_book_to_json(book(1, 1))
LIST: Final = wire.pair_list_to_json(MarketIndex([book(1)]).pair_list())

READER: Final = """
import logging, sys
from market_index import LiveIndex
from market_index_feeds import FeedError, open_feed
from market_index_cli.console import loading
from market_index_cli.signals import ended_by_signals
logging.basicConfig(level=logging.INFO, format="%(message)s")
ending = []
feed = open_feed(sys.argv[1])
with feed, ended_by_signals(lambda: ending.append(1)):
    print("starting", flush=True)
    with loading("", lambda: bool(ending)) as progress:
        try:
            feed.start(LiveIndex(), progress)
        except FeedError as error:
            sys.exit(str(error))
"""

Answer = Callable[[socket.socket, bytes, Event], None]
"""Handles the first request of a connection."""


def answered(body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    """Return the bytes of a response, with more headers."""
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


def lists_one(connection: socket.socket, request: bytes, _: Event) -> None:
    """List one pair and serve its book, with one response per connection. This is not an attack."""
    connection.sendall(answered(LIST if b"pair-list" in request else BOOK))


def continues(connection: socket.socket, _: bytes, done: Event) -> None:
    """Send `100 Continue` without end."""
    while not done.wait(0.1):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def floods(connection: socket.socket, _: bytes, done: Event) -> None:
    """Send `100 Continue` without end, as fast as the reader reads."""
    while not done.is_set():
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def drips_head(connection: socket.socket, _: bytes, done: Event) -> None:
    """Send one byte of the head per second."""
    for byte in answered(LIST):
        if done.wait(1):
            return
        connection.sendall(bytes([byte]))


def drips_body(connection: socket.socket, _: bytes, done: Event) -> None:
    """Send a body without end, one byte at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while not done.wait(0.01):
        connection.sendall(b" ")


def lists_a_million(connection: socket.socket, _: bytes, done: Event) -> None:
    """List a million pairs, whose books are all 404."""
    entries = (b'{"base":"%056x:","quote":"ADA","last_spot":null}' % number for number in range(1_000_000))
    connection.sendall(answered(b'{"pairs":[%b]}' % b",".join(entries)))
    while connection.recv(4096) and not done.is_set():
        connection.sendall(answered(b"{}", b"404 Not Found"))


def speaks_to_terminals(connection: socket.socket, _: bytes, __: Event) -> None:
    """Send escape sequences instead of HTTP."""
    connection.sendall(b"\x1b]0;owned\x07\x1b[2J\x1b[31mall is well\r\n")


def names_without_end(connection: socket.socket, _: bytes, done: Event) -> None:
    """Send a gzip body whose header has a file name without end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\nContent-Encoding: gzip\r\n\r\n")
    connection.sendall(b"\x1f\x8b\x08\x08" + bytes(6))
    while not done.is_set():
        connection.sendall(b"x" * 1000)


def lists_and_stalls(connection: socket.socket, request: bytes, done: Event) -> None:
    """Serve the pair list, and never respond to other requests."""
    if b"pair-list" in request:
        connection.sendall(answered(LIST))
    done.wait()


ATTACKS: Final[dict[str, Answer]] = {
    answer.__name__: answer
    for answer in (
        continues,
        floods,
        drips_head,
        drips_body,
        lists_a_million,
        speaks_to_terminals,
        names_without_end,
        lists_and_stalls,
    )
}


@contextmanager
def upstream(answer: Answer, requested: Event | None = None, *, reads: bool = True) -> Iterator[str]:
    """Run a service that calls `answer` on every connection, and yield its base URL. A request sets `requested`.

    If `reads` is False, the request is not read: `answer` gets empty bytes.
    """
    done = Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = connection.recv(4096) if reads else b""
            if requested is not None:
                requested.set()
            answer(connection, request, done)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        done.set()
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def unconnectable() -> Iterator[str]:
    """Yield the base URL of a host that accepts no connection, because its backlog is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def reader(url: str, fault: str = "") -> subprocess.Popen[str]:
    """Start a reader in its own process, after the statements of `fault`, and return when it starts its feed."""
    process = subprocess.Popen(
        [sys.executable, "-c", fault + READER, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "starting\n"
    return process


def peak_megabytes(process: subprocess.Popen[str]) -> int:
    """Return the peak memory of a running process."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


def report(name: str, url: str, seconds: float) -> None:
    """Print whether the reader ends by itself, and otherwise whether SIGTERM ends it."""
    process = reader(url)
    start, peak = monotonic(), 0
    while process.poll() is None and monotonic() < start + seconds:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
        if process.poll() is None:
            peak = max(peak, peak_megabytes(process))
    outcome = f"ended by itself after {monotonic() - start:.1f} s"
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        start = monotonic()
        try:
            process.wait(15)
            outcome = f"no end in {seconds:g} s; SIGTERM ended it in {monotonic() - start:.1f} s"
        except subprocess.TimeoutExpired:
            process.kill()
            outcome = f"no end in {seconds:g} s; SIGTERM did not end it in 15 s"
    print(f"{name}: {outcome}; {peak} MB; {process.communicate()[1][-160:]!r}", flush=True)


def main() -> None:
    """Print one line per attack."""
    for name, answer in ATTACKS.items():
        with upstream(answer) as url:
            report(f"{name}, ended early", url, 1)
        with upstream(answer) as url:
            report(name, url, 40)
    with unconnectable() as url:
        report("unconnectable", url, 3)


if __name__ == "__main__":
    main()
