"""Several worker processes: equal responses, one scrape for all, replacement, and the end of all of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from market_index_cli.server import workers as supervisor
from market_index_cli.server.workers import RESTART_SECONDS, supervise
from tests.command import SAMPLE, Running, invoke, running
from tests.load import Load
from tests.metrics import Samples, scrape
from tests.service import Client, Service
from tests.waiting import DEADLINE_SECONDS, eventually

LIST = "/trading-view/pair-list"
LISTS = "market_index_requests_total", f"endpoint={LIST}", "status=200"


@pytest.fixture
def two(tmp_path: Path, store: Path) -> Iterator[Running]:
    """Two workers that serve a store."""
    assert invoke("publish", store, SAMPLE).returncode == 0
    with running(tmp_path, store, "--port", 0, "--workers", 2) as command:
        command.has_logged("listening on", 2)
        yield command
        if command.process.poll() is None:
            assert command.end() == 0
        assert "Traceback" not in command.stderr


@contextmanager
def each_worker(service: Service) -> Iterator[dict[int, Client]]:
    """Yield a connection to each of two workers, by process id."""
    clients: dict[int, Client] = {}
    with ExitStack() as stack:
        for _ in range(500):
            client = stack.enter_context(closing(Client(service.port)))
            clients.setdefault(client.request("/healthz").json["process"], client)
            if len(clients) == 2:
                break
        assert len(clients) == 2
        yield clients


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_workers_serve_the_same_and_a_killed_one_is_replaced(two: Running, store: Path):
    with each_worker(two.service) as clients:
        assert len({client.request(LIST).body for client in clients.values()}) == 1
        for process in clients:
            assert f"Z INFO market_index_cli[{process}]: {store}: 13 pairs, 0 rows rejected\n" in two.stderr
        killed, left = clients
        with Load(two.service.port, repeats=True) as load:
            os.kill(killed, signal.SIGKILL)
            two.has_logged(f"worker {killed} ended (signal 9); starting another")
            two.has_logged("listening on", 3)
            load.continues()
        # A request on its way to the killed worker fails once.
        assert load.failures == []
    with each_worker(two.service) as again:
        assert left in again
        assert killed not in again


def test_one_scrape_reports_all_workers_and_no_counter_decreases(two: Running):
    def lists() -> float:
        return scrape(two.service)[LISTS]

    def gauges() -> set[str]:
        samples: Samples = scrape(two.service)
        return {key[1] for key in samples if key[0] == "market_index_pairs"}

    with each_worker(two.service) as clients:
        for client in clients.values():
            for _ in range(3):
                assert client.request(LIST).status == 200
        eventually(lambda: lists() == 6)
        eventually(lambda: gauges() == {"worker=0", "worker=1"})
        os.kill(next(iter(clients)), signal.SIGKILL)
        two.has_logged("listening on", 3)
        eventually(lambda: gauges() == {"worker=0", "worker=1"})
        assert lists() == 6


def test_workers_end_when_their_supervisor_is_killed(two: Running):
    port = two.service.port
    two.process.kill()
    eventually(lambda: is_free(port))
    two.process.wait(DEADLINE_SECONDS)


def test_a_signal_ends_workers_under_load(two: Running):
    with Load(two.service.port) as load:
        load.continues()
        assert two.end() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
def test_a_signal_ends_workers_that_load(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--workers", 3) as command:
        process = command.process.pid
        eventually(Path(f"/proc/{process}/task/{process}/children").read_text)
        assert command.end(signal.SIGINT) == 0
        assert "Traceback" not in command.stderr


def test_a_feed_that_no_worker_can_read_ends_the_command_also_with_a_large_registry(tmp_path: Path, store: Path):
    """The file has the header of a store, so it can be opened, but no other content. No label passes a pipe."""
    assert invoke("publish", store, SAMPLE).returncode == 0
    store.write_bytes(store.read_bytes()[:4096])
    tokens = tmp_path / "tokens.json"
    entries = [
        {"subject": f"{number:056x}", "name": {"value": "x" * 40}, "ticker": {"value": f"T{number}"}}
        for number in range(5_000)
    ]
    tokens.write_text(json.dumps(entries))
    with running(tmp_path, store, "--port", 0, "--workers", 2, "--tokens", tokens) as command:
        assert command.process.wait(DEADLINE_SECONDS) == 3
        assert f"{store} cannot be read: " in command.stderr
        assert "Traceback" not in command.stderr


def test_a_pipe_with_several_workers_is_a_usage_error(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = invoke("serve", pipe, "--workers", 2)
    assert (done.returncode, "can be read by only one process: omit --workers" in done.stderr) == (2, True)


def end_at_once(_: socket.socket, __: int, on_serving: Callable[[], object]) -> None:
    on_serving()


def fail(_: socket.socket, __: int, ___: Callable[[], object]) -> None:
    raise SystemExit(3)


def fail_after_serving(_: socket.socket, __: int, on_serving: Callable[[], object]) -> None:
    on_serving()
    raise SystemExit(3)


class TestSupervisor:
    """`supervise` in this process, with workers that end by themselves."""

    def supervised(self, work: Any, workers: int = 1, on_ended: Callable[[int], object] = lambda _: None) -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return supervise(work, listener, workers, DEADLINE_SECONDS, on_ended)

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def test_one_that_fails_before_any_serves_ends_all(self):
        assert self.supervised(fail, workers=2) == 3

    @pytest.mark.parametrize("work", [end_at_once, fail_after_serving])
    def test_one_that_ends_later_is_replaced(self, caplog: pytest.LogCaptureFixture, work: Any):
        ended: list[int] = []

        def on_ended(number: int) -> None:
            ended.append(number)
            if len(ended) == 2:
                self.end()

        assert self.supervised(work, on_ended=on_ended) == 0
        assert ended == [0, 0]
        reason = "exit code 3" if work is fail_after_serving else "exit code 0"
        assert all(f"ended ({reason}); starting another" in message for message in caplog.messages)

    def test_it_is_not_replaced_before_its_time(self, monkeypatch: pytest.MonkeyPatch):
        now, started, has_ended = 0.0, [], Event()
        really = SpawnProcess.start

        def start(process: SpawnProcess) -> None:
            started.append(now)
            really(process)

        def clock() -> float:
            """Advance by a tenth of the time per look, once the first worker has ended."""
            nonlocal now
            if has_ended.is_set():
                now += RESTART_SECONDS / 10
            if len(started) == 2:
                self.end()
            return now

        monkeypatch.setattr(SpawnProcess, "start", start)
        monkeypatch.setattr(supervisor, "monotonic", clock)
        assert self.supervised(end_at_once, on_ended=lambda _: has_ended.set()) == 0
        assert started[1] >= started[0] + RESTART_SECONDS

    def test_one_that_cannot_be_started_is_tried_again(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ):
        starts: list[SpawnProcess] = []

        def start(process: SpawnProcess) -> None:
            starts.append(process)
            if len(starts) == 3:
                self.end()
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(SpawnProcess, "start", start)
        assert self.supervised(end_at_once) == 0
        assert caplog.messages == ["a worker cannot be started: [Errno 24] Too many open files"] * 3


def ignore_sigterm(_: socket.socket, __: int, on_serving: Callable[[], object]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("working", flush=True)
    on_serving()
    while True:
        time.sleep(60)


STUBBORN = """
import socket
from market_index_cli.server.workers import supervise
from tests.market_index_cli.server.test_workers import ignore_sigterm
if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listener:
        raise SystemExit(supervise(ignore_sigterm, listener, 1, 0.2, lambda _: None))
"""


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_a_worker_that_ignores_sigterm_is_killed_also_without_its_supervisor(
    tmp_path: Path, number: int, exit_code: int
):
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == "working\n"
        process.send_signal(number)
        assert process.wait(DEADLINE_SECONDS) == exit_code
        assert process.stdout.read() == "", "returns once the worker has ended"
