"""Several worker processes: equal responses, one scrape for all, replacement, and the end of all of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from market_index_cli.server import workers as supervisor
from market_index_cli.server.workers import RESTART_SECONDS, supervise
from market_index_feeds import open_store
from tests.command import SAMPLE, invoke, own_signals, running, untimed
from tests.feeds.made_up import book
from tests.load import Load
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


def test_a_feed_that_no_worker_can_read_ends_the_command(tmp_path: Path, store: Path):
    """The file has the header of a store, so it can be opened, but no other content."""
    assert invoke("publish", store, SAMPLE).returncode == 0
    store.write_bytes(store.read_bytes()[:4096])
    with running(tmp_path, store, "--port", 0, "--workers", 2) as command:
        assert command.process.wait(DEADLINE_SECONDS) == 3
        assert f"{store} cannot be opened: " in command.stderr
        assert "Traceback" not in command.stderr


class World:
    """Fake processes and a fake clock for `supervise`. `waits` is called instead of each wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, waits: Callable[[World], object]) -> None:
        self.now = 0.0
        self.is_full = self.has_served = False
        self.made: list[Process] = []
        self.ended: list[int] = []
        self._waits = waits
        monkeypatch.setattr(supervisor, "_SPAWNING", SimpleNamespace(Process=self._process))
        monkeypatch.setattr(supervisor, "wait", self._wait)
        monkeypatch.setattr(supervisor, "monotonic", lambda: self.now)

    def supervised(self, workers: int) -> int:
        with socket.socket() as listener, own_signals():
            return supervise(lambda *_: None, listener, workers, 5, self._on_ended)

    def _on_ended(self, number: int) -> bool:
        self.ended.append(number)
        return self.has_served

    def _process(self, target: object, args: tuple[Any, ...], daemon: bool) -> Process:
        assert (target, daemon) == (supervisor._in_worker, True)
        return Process(self, args)

    def _wait(self, _: object, timeout: float) -> None:
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self.now += timeout
        self._waits(self)


class Process(Mock):
    """A fake process; its constructor gets the arguments of `_in_worker`."""

    def __init__(self, world: World, args: tuple[Any, ...]) -> None:
        super().__init__(exitcode=None, pid=4000 + len(world.made))
        self.__dict__.update(world=world, number=args[2], started=world.now)

    def terminate(self) -> None:
        self.exitcode = -signal.SIGTERM

    def start(self) -> None:
        if self.world.is_full:
            raise OSError(24, "Too many open files")
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "a worker would inherit Ctrl-C"
        self.world.made.append(self)

    def _get_child_mock(self, /, **options: Any) -> Mock:
        return Mock(**options)


def end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("exit_code", [3, -9])
def test_a_worker_that_ends_later_is_replaced_after_a_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, exit_code: int
):
    def fail_once(world: World) -> None:
        world.has_served = True
        world.made[1].exitcode = exit_code
        if len(world.made) == 3:
            end()

    world = World(monkeypatch, fail_once)
    assert world.supervised(2) == 0
    assert caplog.messages == [f"worker 4001 ended (exit code {exit_code}); starting another"]
    assert [one.number for one in world.made] == [0, 1, 1]
    assert [one.started >= RESTART_SECONDS for one in world.made] == [False, False, True]
    assert world.ended == [1]


def test_a_worker_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def make_room(world: World) -> None:
        world.is_full = world.now < 2.5 * RESTART_SECONDS
        if world.made:
            end()

    world = World(monkeypatch, make_room)
    world.is_full = True
    assert world.supervised(1) == 0
    assert caplog.messages == ["a worker cannot be started: [Errno 24] Too many open files"] * 3
    assert [one.started >= 3 * RESTART_SECONDS for one in world.made] == [True]


def test_a_worker_that_fails_before_any_has_served_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Also if its program cannot be started at all, and so logs nothing itself."""

    def fail(world: World) -> None:
        world.made[1].exitcode = 255

    assert World(monkeypatch, fail).supervised(2) == 255
    assert caplog.messages == ["worker 4001 ended (exit code 255) before it served"]


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
