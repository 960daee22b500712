"""SIGHUP restarts workers one after another, and a killed worker is replaced, while clients send requests."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from market_index_cli.server.workers import supervise
from market_index_cli.signals import ended_by_signals, ignore_hangups
from tests.command import SAMPLE, Running, running
from tests.load import Load
from tests.waiting import DEADLINE_SECONDS, eventually


def has_restarted(command: Running, workers: int) -> bool:
    return command.stderr.count("serves; ending worker") == workers


def has_others(load: Load, before: set[int]) -> bool:
    """Whether two more workers have responded, or a request has failed."""
    return len(load.processes - before) == 2 or load.failures != []


@pytest.mark.thorough
def test_sighup_restarts_all_workers_without_a_failed_request(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--workers", 2) as command:
        eventually(lambda: command.stderr.count("listening on") == 2)
        with Load(command.service.port) as load:
            eventually(lambda: len(load.processes) == 2 or load.failures)
            for restarts in (1, 2):
                before = set(load.processes)
                command.process.send_signal(signal.SIGHUP)
                eventually(partial(has_restarted, command, 2 * restarts))
                eventually(partial(has_others, load, before))
                load.continues()
        assert load.failures == []
        assert load.repeated == 0
        assert len(load.processes) == 6
        assert "SIGHUP: restarting 2 workers, one after another\n" in command.stderr
        assert command.end() == 0
        assert "Traceback" not in command.stderr


@pytest.mark.thorough
def test_no_request_fails_for_good_while_a_worker_is_killed(tmp_path: Path):
    """A request that the killed worker had received is sent again, as HTTP clients do with GET."""
    with running(tmp_path, SAMPLE, "--port", 0, "--workers", 2) as command:
        eventually(lambda: command.stderr.count("listening on") == 2)
        with Load(command.service.port, repeats=True) as load:
            eventually(lambda: len(load.processes) == 2 or load.failures)
            killed = min(load.processes)
            os.kill(killed, signal.SIGKILL)
            eventually(lambda: f"worker {killed} ended (signal 9); starting another" in command.stderr)
            eventually(lambda: len(load.processes) == 3 or load.failures)
            load.continues()
        assert load.failures == []
        assert command.end() == 0


@pytest.mark.thorough
def test_workers_ignore_the_hangup_of_a_terminal(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--workers", 2) as command:
        eventually(lambda: command.stderr.count("listening on") == 2)
        with Load(command.service.port) as load:
            eventually(lambda: len(load.processes) == 2 or load.failures)
            for process in set(load.processes):
                os.kill(process, signal.SIGHUP)
            load.continues()
            assert len(load.processes) == 2
        assert load.failures == []


def work(folder: Path, _: socket.socket, on_serving: Callable[[], object], number: int) -> None:
    """Serve until SIGTERM, after the state in the file: `fail` ends it first, `load` waits until the file changes."""
    state = folder / "state"
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
    (folder / f"started {os.getpid()}").write_text(str(number))
    if state.read_text() == "fail":
        raise SystemExit(7)
    eventually(lambda: state.read_text() != "load" or ending)
    on_serving()
    (folder / f"serves {os.getpid()}").touch()
    eventually(lambda: ending and state.read_text() != "stubborn")


class Supervised:
    """The workers of a supervisor that runs in the main thread, seen by a script in another one."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self._folder = folder
        self._caplog = caplog
        self.ended: list[int] = []
        """The numbers of workers, each time the supervisor reports that one has ended."""
        caplog.set_level(logging.INFO, "market_index_cli")
        self.state("serve")

    def state(self, text: str) -> None:
        new = self._folder / "new"
        new.write_text(text)
        new.replace(self._folder / "state")

    def are(self, event: str, count: int) -> list[int]:
        """Wait until so many workers have started, or have served, and return their process ids."""
        eventually(lambda: len(self._found(event)) >= count)
        return self._found(event)

    def number(self, process: int) -> int:
        """Return the number of a worker that has started."""
        return int((self._folder / f"started {process}").read_text())

    def logs(self, text: str, times: int = 1) -> None:
        eventually(lambda: sum(text in record.getMessage() for record in self._caplog.records) >= times)

    def _found(self, event: str) -> list[int]:
        files = sorted(self._folder.glob(f"{event} *"), key=lambda file: file.stat().st_mtime_ns)
        return [int(file.name.split()[1]) for file in files]


def supervised(
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    script: Callable[[Supervised], None],
    count: int = 2,
    timeout: float = DEADLINE_SECONDS,
) -> None:
    """Run a supervisor with so many workers, and a script in another thread. End the supervisor after the script."""
    seen = Supervised(folder, caplog)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            script(seen)
        except BaseException as error:  # noqa: BLE001  # it is raised below
            errors.append(error)
        finally:
            seen.state("serve")
            os.kill(os.getpid(), signal.SIGTERM)

    thread = Thread(target=run)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread.start()
        run_worker = partial(work, folder)
        assert supervise(run_worker, listener, count, timeout, restart_seconds=0, on_ended=seen.ended.append) == 0
    thread.join()
    if errors:
        raise errors[0]


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_worker_ends_once_its_replacement_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def script(seen: Supervised) -> None:
        first, second = seen.are("serves", 2)
        seen.state("load")
        hang_up()
        third = seen.are("started", 3)[-1]
        assert is_running(first)
        assert is_running(second)
        seen.state("serve")
        fourth = seen.are("serves", 4)[-1]
        seen.logs("serves; ending", 2)
        eventually(lambda: not is_running(first) and not is_running(second))
        assert is_running(third)
        assert is_running(fourth)

    supervised(tmp_path, caplog, script)
    assert len(list(tmp_path.glob("started *"))) == 4


def test_a_replacement_that_fails_stops_the_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def script(seen: Supervised) -> None:
        before = seen.are("serves", 2)
        seen.state("fail")
        hang_up()
        failed = seen.are("started", 3)[-1]
        seen.logs(f"worker {failed} ended (exit code 7) before it served; restart stopped, old workers continue")
        assert all(map(is_running, before))
        seen.state("serve")
        hang_up()  # the next one succeeds
        seen.are("serves", 4)
        seen.logs("serves; ending", 2)

    supervised(tmp_path, caplog, script)
    assert len(list(tmp_path.glob("started *"))) == 5


@pytest.mark.parametrize("killed", [0, 1])
def test_a_replacement_takes_the_place_of_an_old_worker_that_ends_first(
    killed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    def script(seen: Supervised) -> None:
        old = seen.are("serves", 2)
        seen.state("load")
        hang_up()
        third = seen.are("started", 3)[-1]
        os.kill(old[killed], signal.SIGKILL)
        seen.logs(f"worker {old[killed]} ended (signal 9); worker {third} takes its place")
        seen.are("started", 4)  # the replacement of the other one
        assert is_running(old[1 - killed])
        seen.state("serve")
        seen.are("serves", 4)
        seen.logs(f"serves; ending worker {old[1 - killed]}")

    supervised(tmp_path, caplog, script)
    assert len(list(tmp_path.glob("started *"))) == 4


def test_a_number_is_free_only_once_its_worker_has_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def script(seen: Supervised) -> None:
        by_number = {seen.number(process): process for process in seen.are("serves", 2)}
        assert by_number.keys() == {0, 1}
        seen.state("fail")
        hang_up()
        seen.logs("restart stopped, old workers continue")
        assert seen.number(seen.are("started", 3)[-1]) == 2
        seen.state("stubborn")
        hang_up()
        seen.logs(f"serves; ending worker {by_number[0]}")
        assert seen.number(seen.are("serves", 3)[-1]) == 2
        os.kill(by_number[1], signal.SIGKILL)
        assert seen.number(seen.are("serves", 4)[-1]) == 1
        assert is_running(by_number[0])
        assert seen.ended == [2, 1]
        seen.state("serve")
        eventually(lambda: seen.ended == [2, 1, 0])

    supervised(tmp_path, caplog, script)


def test_an_old_worker_that_ignores_sigterm_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def script(seen: Supervised) -> None:
        (old,) = seen.are("serves", 1)
        seen.state("stubborn")
        hang_up()
        seen.are("serves", 2)
        eventually(lambda: not is_running(old))

    supervised(tmp_path, caplog, script, count=1, timeout=0.2)


def test_a_signal_ends_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def script(seen: Supervised) -> None:
        seen.are("serves", 2)
        seen.state("load")
        hang_up()
        seen.are("started", 3)

    supervised(tmp_path, caplog, script)
    assert not any(map(is_running, (int(file.name.split()[1]) for file in tmp_path.glob("started *"))))


@contextmanager
def without_sighup(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.delattr(signal, "SIGHUP")
        yield


def test_a_system_without_sighup(monkeypatch: pytest.MonkeyPatch):
    before = signal.getsignal(signal.SIGHUP)
    number = signal.SIGHUP
    with without_sighup(monkeypatch), ended_by_signals(list, list):
        ignore_hangups()
        assert signal.getsignal(number) == before
