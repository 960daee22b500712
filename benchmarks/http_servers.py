"""Server processes that are stopped while another one is measured, and wrk, which measures."""

from __future__ import annotations

import gzip
import http.client
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from attrs import field, frozen

from benchmarks.measure import ROOT
from tests.nats import spare_port

CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
CONNECTIONS: Final = 32
ROUND_SECONDS: Final = 0.1
MAX_ROUND_SECONDS: Final = 1.0
RESPONSES_PER_CONNECTION: Final = 3
"""Per round. Fewer are too coarse: some servers complete the responses of all connections at the same time."""

START_SECONDS: Final = 60
MAX_INTERRUPTED: Final = 6
WARM_UP_REQUESTS: Final = 50

Rates: TypeAlias = dict[str, dict[str, list[float]]]


@frozen
class Target:
    """A request; `expected` is the body that is required before the measurement, None if it changes."""

    name: str
    path: str
    expected: bytes | None
    headers: tuple[tuple[str, str], ...] = ()
    script: Path | None = None
    connections: int = CONNECTIONS


@frozen
class Contender:
    """A server: its name in the report, its command without the port, and its targets."""

    name: str
    command: tuple[str, ...]
    targets: tuple[Target, ...]
    port: int = field(factory=spare_port)

    def arguments(self) -> list[str]:
        return [one.replace("PORT", str(self.port)) for one in self.command]


@contextmanager
def serving(contender: Contender) -> Iterator[Server]:
    """Run the server on the first core, and stop it until it is measured."""
    process = subprocess.Popen(
        [*pinned(CORES[0]), *contender.arguments()],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    server = Server(contender, process)
    try:
        server.wait()
        server.send(signal.SIGSTOP)
        yield server
    finally:
        server.end()


@frozen
class Server:
    """A running contender, with the processes that it started."""

    contender: Contender
    process: subprocess.Popen[bytes]

    def send(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                answer(self.contender.port, Target("", "/", None))
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.contender.name} does not serve") from None
                time.sleep(0.05)
            else:
                return

    def end(self) -> None:
        # Also if it is stopped, and with its child processes.
        with suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self.process.wait(START_SECONDS)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the server run within the context; otherwise it uses no time of the core that all servers share."""
        self.send(signal.SIGCONT)
        try:
            yield
        finally:
            self.send(signal.SIGSTOP)


def pinned(core: int) -> list[str]:
    return ["taskset", "-c", str(core)] if shutil.which("taskset") else []


@frozen
class Answer:
    status: int
    encoding: str | None
    body: bytes


def answer(port: int, target: Target) -> Answer:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", target.path, headers=dict(target.headers))
        response = connection.getresponse()
        return Answer(response.status, response.headers["content-encoding"], response.read())


def check(server: Server, target: Target) -> float:
    """Compare the bytes of each response, and warm the server up. Return how many seconds a round needs."""
    name, port = server.contender.name, server.contender.port
    is_gzip = any(field == "Accept-Encoding" for field, _ in target.headers)
    begun = time.monotonic()
    for _ in range(WARM_UP_REQUESTS):
        found = answer(port, target)
        body = gzip.decompress(found.body) if found.encoding == "gzip" else found.body
        is_expected = target.expected is None or body == target.expected
        if found.status not in {200, 304} or not is_expected or (found.encoding == "gzip") != is_gzip:
            raise RuntimeError(f"{name} answers {target.path} with {found.status}: {body[:200]!r}")
    each = (time.monotonic() - begun) / WARM_UP_REQUESTS
    return min(max(ROUND_SECONDS, RESPONSES_PER_CONNECTION * target.connections * each), MAX_ROUND_SECONDS)


def requests_per_second(server: Server, target: Target, seconds: float) -> float:
    for _ in range(MAX_INTERRUPTED):
        if rate := measured(server, target, seconds):
            return rate
    raise RuntimeError(f"wrk was interrupted {MAX_INTERRUPTED} times before it had counted anything")


def measured(server: Server, target: Target, seconds: float) -> float | None:
    """Return what wrk counts in one round; None if it was interrupted before it counted any.

    wrk takes whole seconds; SIGINT ends it earlier, and it then divides by the time that has passed. An
    interrupt that comes before wrk handles it is lost, or ends wrk without a result.
    """
    command = [*pinned(CORES[-1]), "wrk", "-t1", f"-c{target.connections}", f"-d{int(seconds) + 2}s"]
    for name, value in target.headers:
        command += ["-H", f"{name}: {value}"]
    if target.script:
        command += ["-s", str(target.script)]
    command.append(f"http://127.0.0.1:{server.contender.port}{target.path}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=30)[0]
    if "Non-2xx or 3xx" in output or "Socket errors" in output:
        raise RuntimeError(f"{server.contender.name}: {output}")
    found = re.search(r"Requests/sec: +([0-9.]+)", output)
    return float(found[1]) or None if found else None


def interleaved_rates(servers: Sequence[Server], rounds: int) -> Rates:
    """Return the requests per second by target and contender, round by round."""
    rates: Rates = {}
    turns: list[tuple[Server, Target, float]] = []
    for name in {target.name: None for server in servers for target in server.contender.targets}:
        for server in servers:
            for target in server.contender.targets:
                if target.name == name:
                    with server.running():
                        turns.append((server, target, check(server, target)))
    for _ in range(rounds):
        for server, target, seconds in turns:
            with server.running():
                rate = requests_per_second(server, target, seconds)
            rates.setdefault(target.name, {}).setdefault(server.contender.name, []).append(rate)
    return rates
