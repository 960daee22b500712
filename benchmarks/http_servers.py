"""Server processes that are stopped while another one is measured, and wrk, which measures."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from attrs import field, frozen

from benchmarks.measure import ROOT
from benchmarks.processes import await_listener
from tests.command import Running, started
from tests.nats import spare_port
from tests.service import Client

CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
CONNECTIONS: Final = 32
ROUND_SECONDS: Final = (1, 5, 25)
WARM_UP_REQUESTS: Final = 50

Rates: TypeAlias = dict[str, dict[str, list[float]]]


@frozen
class Target:
    """A request with at most one header; `expected` is the body that is required, None if it changes."""

    name: str
    path: str
    expected: bytes | None
    header: str = ""
    script: Path | None = None
    connections: int = CONNECTIONS


@frozen
class Contender:
    """A server: its name in the report, its command without the port, and its targets."""

    name: str
    command: tuple[str, ...]
    targets: tuple[Target, ...]
    port: int = field(factory=spare_port)


@frozen
class Server:
    """A running contender."""

    contender: Contender
    running: Running

    def send(self, number: signal.Signals) -> None:
        self.running.process.send_signal(number)

    @contextmanager
    def continued(self) -> Iterator[None]:
        """Let the server run within the context; otherwise it uses no time of the core that all servers share."""
        self.send(signal.SIGCONT)
        try:
            yield
        finally:
            self.send(signal.SIGSTOP)


@contextmanager
def serving(contender: Contender) -> Iterator[Server]:
    """Run the server on the first core, and stop it until it is measured."""
    words = [word.replace("PORT", str(contender.port)) for word in contender.command]
    with started(Path(os.devnull), *pinned(CORES[0]), *words, cwd=ROOT) as running:
        await_listener(contender.port)
        server = Server(contender, running)
        server.send(signal.SIGSTOP)
        yield server


def pinned(core: int) -> list[str]:
    return ["taskset", "-c", str(core)] if shutil.which("taskset") else []


def check(server: Server, target: Target) -> None:
    """Compare the bytes of each response, and warm the server up."""
    is_gzip = "gzip" in target.header
    for _ in range(WARM_UP_REQUESTS):
        with closing(Client(server.contender.port)) as client:
            found = client.request(target.path, headers=f"{target.header}\r\n" if target.header else "")
        has_gzip = found.headers.get("content-encoding") == "gzip"
        body = gzip.decompress(found.body) if has_gzip else found.body
        is_expected = target.expected is None or body == target.expected
        if found.status not in {200, 304} or not is_expected or has_gzip != is_gzip:
            raise RuntimeError(f"{server.contender.name} answers {target.path} with {found.status}: {body[:200]!r}")


def requests_per_second(server: Server, target: Target) -> float:
    """Return what wrk counts in one round, on the last core; in a longer one if no response was complete."""
    for seconds in ROUND_SECONDS:
        command = [*pinned(CORES[-1]), "wrk", "-t1", f"-c{target.connections}", f"-d{seconds}s"]
        command += ["-H", target.header] if target.header else []
        command += ["-s", str(target.script)] if target.script else []
        command.append(f"http://127.0.0.1:{server.contender.port}{target.path}")
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        found = re.search(r"Requests/sec: +([0-9.]+)", output)
        if found is None or "Non-2xx or 3xx" in output or "Socket errors" in output:
            raise RuntimeError(f"{server.contender.name}: {output}")
        if rate := float(found[1]):
            return rate
    raise RuntimeError(f"{server.contender.name} completed no response to {target.path} in {ROUND_SECONDS[-1]} seconds")


def interleaved_rates(servers: Sequence[Server], rounds: int) -> Rates:
    """Return the requests per second by target and contender, round by round."""
    turns = [(server, target) for server in servers for target in server.contender.targets]
    turns.sort(key=lambda turn: [target.name for target in servers[0].contender.targets].index(turn[1].name))
    rates: Rates = {}
    for server, target in turns:
        with server.continued():
            check(server, target)
    for _ in range(rounds):
        for server, target in turns:
            with server.continued():
                rate = requests_per_second(server, target)
            rates.setdefault(target.name, {}).setdefault(server.contender.name, []).append(rate)
    return rates
