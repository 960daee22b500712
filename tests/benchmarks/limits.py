"""Costs of the limits on clients: `python -m tests.benchmarks.limits` compares the server with plain uvicorn.

Two processes serve the same app, by our protocol and by that of uvicorn. Short rounds alternate between
them, and so does the order. After some rounds both are restarted, because processes differ by a few percent. The
processor time per request is that of the process that serves: unlike the throughput, it depends little on other load.
"""

from __future__ import annotations

import argparse
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import uvicorn
from attrs import define, frozen

from market_index import LiveIndex
from market_index_cli.server.http_server import Server
from market_index_http import create_app
from tests.benchmarks.books import books
from tests.service import served

ROOT: Final = Path(__file__).resolve().parents[2]
CONNECTIONS: Final = 16
RESAMPLES: Final = 10_000
LIMITED, PLAIN = "with limits", "plain uvicorn"

FIELDS: Final = (
    "Host: 127.0.0.1:8000\r\nUser-Agent: python-requests/2.32.3\r\nAccept-Encoding: identity\r\nAccept: */*\r\n"
    "Connection: keep-alive\r\n\r\n"
)


@frozen
class Round:
    """Requests per second, and the processor time of the server per request in microseconds."""

    rate: float
    microseconds: float


def serve(name: str) -> None:
    """Serve a book of 50 levels a side, print the port and the target, and end with standard input."""
    book = books(1, 50)[0]
    app = create_app(LiveIndex([book]))
    server: uvicorn.Server = Server(app)
    if name == PLAIN:
        # The same header fields: only the protocol differs.
        headers = server.config.headers
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                headers=headers,
            )
        )
    with served(app, server) as service:
        print(service.port, f"/trading-view/order-book?base={book.pair.base}&quote=ADA", flush=True)
        sys.stdin.read()


@contextmanager
def contender(name: str) -> Iterator[Contender]:
    """Start a process that serves, and connect to it."""
    command = [sys.executable, "-m", "tests.benchmarks.limits", "--serve", name]
    with (
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        ExitStack() as stack,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        port, target = process.stdout.readline().split()
        address = "127.0.0.1", int(port)
        connections = [stack.enter_context(closing(socket.create_connection(address))) for _ in range(CONNECTIONS)]
        yield Contender(process.pid, connections, f"GET {target} HTTP/1.1\r\n{FIELDS}".encode())
        stack.close()
        process.stdin.close()


def processor_seconds(process: int) -> float:
    """Return the processor time of the threads of a process (Linux)."""
    stats = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in stats) / 1e9


@define
class Contender:
    """The connections to one of the two ports."""

    process: int
    connections: Sequence[socket.socket]
    request: bytes

    def measured(self, count: int) -> Round:
        """Send `count` requests, one at a time on each connection."""
        length = answered(self.connections[0], self.request)
        began, used = time.perf_counter(), processor_seconds(self.process)
        for _ in range(count // CONNECTIONS):
            for connection in self.connections:
                connection.sendall(self.request)
            for connection in self.connections:
                missing = length
                while missing:
                    received = len(connection.recv(missing))
                    assert received > 0
                    missing -= received
        seconds, used = time.perf_counter() - began, processor_seconds(self.process) - used
        return Round(count / seconds, 1e6 * used / count)


def answered(connection: socket.socket, request: bytes) -> int:
    """Send one request. Return the length of its response."""
    connection.sendall(request)
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 200 ")
    head = received.partition(b"\r\n\r\n")[0]
    length = len(head) + 4 + int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(received) < length:
        received += connection.recv(65536)
    return length


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap confidence interval of the median of the ratios."""
    numbers = random.Random(1)
    medians = sorted(median(numbers.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def report(what: str, unit: str, pairs: Sequence[tuple[Round, Round]], value: Callable[[Round], float]) -> str:
    """Return one line: the median of each contender, and the ratio with its confidence interval."""
    limited, plain = (median(value(pair[which]) for pair in pairs) for which in (0, 1))
    ratios = [value(one) / value(other) for one, other in pairs]
    low, high = interval(ratios)
    text = f"{what}: {limited:,.1f} {unit} {LIMITED}, {plain:,.1f} {unit} {PLAIN}"
    return f"{text}; ratio {median(ratios):.4f} (95 % interval {low:.4f} to {high:.4f}, {len(pairs)} pairs)"


def pair(number: int, rounds: int, requests: int) -> tuple[Round, Round]:
    """Return the median round of each contender, the one with limits first."""
    order = (LIMITED, PLAIN) if number % 2 else (PLAIN, LIMITED)
    taken: dict[str, list[Round]] = {LIMITED: [], PLAIN: []}
    with contender(order[0]) as first, contender(order[1]) as second:
        both = list(zip(order, (first, second), strict=True))
        for _ in range(rounds):
            for name, one in both:
                taken[name].append(one.measured(requests))
            both.reverse()
    # The first quarter warms up.
    limited, plain = (
        Round(median(one.rate for one in of[rounds // 4 :]), median(one.microseconds for one in of[rounds // 4 :]))
        for of in taken.values()
    )
    return limited, plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=[LIMITED, PLAIN], help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, default=40, help="how often both processes are started")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of each process")
    parser.add_argument("--requests", type=int, default=400, help="requests per round")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    pairs = [pair(number, options.rounds, options.requests) for number in range(options.pairs)]
    print(report("throughput", "requests/s", pairs, lambda one: one.rate))
    print(report("processor time per request", "µs", pairs, lambda one: one.microseconds))


if __name__ == "__main__":
    main()
