"""Several worker processes: equal responses, one scrape for all, replacement, and the end of all of them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import pairwise
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import monotonic

import pytest

from market_index_cli.server import workers as supervisor
from market_index_cli.server.workers import RESTART_SECONDS, supervise
from market_index_feeds import open_store
from tests.command import SAMPLE, invoke, own_signals, running, untimed
from tests.feeds.made_up import book
from tests.load import Load
from tests.market_index_cli.server import stubborn
from tests.metrics import Samples, scrape
from tests.service import Client, broken_rules
from tests.waiting import DEADLINE_SECONDS, eventually

LIST = "/trading-view/pair-list"


def lists(samples: Samples) -> float:
    """Return how many pair lists the workers have sent."""
    return sum(
        number
        for (name, *labels), number in samples.items()
        if name == "market_index_requests_total" and labels[:2] == [f"endpoint={LIST}", "status=200"]
    )


@contextmanager
def each_worker(address: int | Path) -> Iterator[dict[int, Client]]:
    """Yield a connection to each of two workers, by process id."""
    clients: dict[int, Client] = {}
    with ExitStack() as stack:
        for _ in range(500):
            client = stack.enter_context(closing(Client(address)))
            clients.setdefault(client.request("/healthz").json["process"], client)
            if len(clients) == 2:
                break
        assert len(clients) == 2
        yield clients


def test_workers_serve_the_same_until_a_signal_and_a_killed_one_is_replaced(tmp_path: Path, store: Path):
    assert invoke("publish", store, SAMPLE).returncode == 0
    with running(tmp_path, store, "--port", 0, "--workers", 2) as command:
        command.has_logged("listening on", 2)
        service = command.service
        with each_worker(service.port) as clients:
            assert len({client.request(LIST).body for client in clients.values()}) == 1
            eventually(lambda: lists(scrape(service)) == 2)
            assert [broken_rules(client) for client in clients.values()] == [[], []]
            for process in clients:
                assert f"Z INFO market_index_cli[{process}]: {store}: 13 pairs, 0 records rejected\n" in command.stderr
            killed, left = clients
            with Load(service.port) as load:
                os.kill(killed, signal.SIGKILL)
                command.has_logged(f"worker {killed} ended (exit code -9); starting another")
                command.has_logged("listening on", 3)
                load.continues()
            # A request on its way to the killed worker fails once.
            assert load.failures == []
        with each_worker(service.port) as again:
            assert left in again
        samples = scrape(service)
        assert {key[1] for key in samples if key[0] == "market_index_pairs"} == {"worker=0", "worker=1"}
        with Load(service.port) as load:
            load.continues()
            assert command.end() == 0
        assert "Traceback" not in command.stderr


def test_workers_serve_a_bucket_on_a_path(tmp_path: Path, bucket: str):
    path = tmp_path / "index.sock"
    with open_store(bucket) as store, ExitStack() as stack:
        store.publish(book(1))
        command = stack.enter_context(running(tmp_path, bucket, "--uds", path, "--workers", 2))
        command.has_logged(f"listening on unix:{path}\n", 2)
        with each_worker(path) as clients:
            store.publish(book(2))
            eventually(lambda: all(len(client.request(LIST).json["pairs"]) == 2 for client in clients.values()))
        assert command.end() == 0


def test_a_worker_that_fails_before_any_has_served_ends_the_command(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    work = partial(stubborn.end_with_the_second_worker, tmp_path / "was started")
    with socket.socket() as listener, own_signals():
        assert supervise(work, listener, 1, DEADLINE_SECONDS, lambda _: False) == 3
    (message,) = caplog.messages
    assert re.fullmatch(r"worker \d+ ended \(exit code 3\) before it served", message)


def test_a_worker_that_cannot_start_or_ends_is_started_again_after_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    starts: list[float] = []
    ended: list[int] = []
    start = SpawnProcess.start

    def start_unless_first(process: SpawnProcess) -> None:
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "a worker would inherit Ctrl-C"
        starts.append(monotonic())
        if len(starts) == 1:
            raise OSError(24, "Too many open files")
        start(process)

    def on_ended(number: int) -> bool:
        ended.append(number)
        return True

    monkeypatch.setattr(SpawnProcess, "start", start_unless_first)
    work = partial(stubborn.end_with_the_second_worker, tmp_path / "was started")
    with socket.socket() as listener, own_signals():
        assert supervise(work, listener, 1, DEADLINE_SECONDS, on_ended) == 0
    not_started, replaced, *_ = caplog.messages
    assert not_started == "a worker cannot be started: [Errno 24] Too many open files"
    assert re.fullmatch(r"worker \d+ ended \(exit code 3\); starting another", replaced)
    assert ended[0] == 0
    assert len(starts) == 3
    assert min(after - before for before, after in pairwise(starts)) >= RESTART_SECONDS


def test_a_second_interrupt_ends_at_once():
    command = [sys.executable, "-m", "tests.market_index_cli.server.stubborn", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout
        assert process.stdout.readline() == "working\n"
        # Several, because two that arrive together are one.
        for _ in range(int(20 * DEADLINE_SECONDS)):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                break
        # The last signal may interrupt the end of the interpreter.
        assert process.returncode in {0, -signal.SIGINT}


@pytest.mark.parametrize("name", ["RawArray", "ensure_running"])
def test_workers_need_shared_memory_and_another_process(name: str, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    owner = supervisor._SPAWNING if name == "RawArray" else supervisor
    monkeypatch.setattr(owner, name, fail)
    done = invoke("serve", SAMPLE, "--workers", 2, "--port", 0)
    message = "--workers needs more processes, and a writable /dev/shm or temporary folder: Read-only file system"
    assert (done.returncode, untimed(done.stderr).splitlines()[-1]) == (2, message)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_a_worker_that_ignores_sigterm_is_killed_also_without_its_supervisor(number: int, exit_code: int):
    command = [sys.executable, "-m", "tests.market_index_cli.server.stubborn", "0.2"]
    folder = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout
        assert process.stdout.readline() == "working\n"
        process.send_signal(number)
        assert process.wait(DEADLINE_SECONDS) == exit_code
        assert process.stdout.read() == "", "returns once the worker has ended"
