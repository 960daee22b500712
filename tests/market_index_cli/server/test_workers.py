"""Several worker processes that serve one store: equal responses, no lost request, restarts and shutdown."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from threading import Event, Thread
from typing import Self

import pytest

from market_index import OrderBook, wire
from market_index_cli.server import serving, workers
from market_index_cli.server.connection import ClientLimits
from market_index_feeds import open_feed, open_store
from market_index_http import Counters
from tests.command import SAMPLE, Running, invoke, own_signals_and_logging, run, running
from tests.market_index_feeds.made_up import pair
from tests.service import Client, Service
from tests.waiting import DEADLINE_SECONDS, eventually


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "market.db"
    with open_store(path) as store, open_feed(SAMPLE) as feed:
        store.publish(*feed.read().values())
    return path


@pytest.fixture
def two(tmp_path: Path, store: Path) -> Iterator[Running]:
    """Two workers that serve the store."""
    with running(tmp_path, store, "--port", 0, "--workers", 2) as command:
        eventually(lambda: command.stderr.count("listening on") == 2)
        yield command
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


TARGET = f"/trading-view/order-book?base={pair(1).base}&quote=ADA"
VERSIONS = 60


def version(number: int) -> OrderBook:
    levels = [(str(price), number) for price in range(1, 400)]
    return OrderBook.from_levels(pair(1), bids=levels, spot=str(number))


VERSION_OF = {wire.order_book_to_json(version(number)): number for number in range(1, VERSIONS + 1)}
"""The version of a book by its body."""


def served_versions(service: Service) -> dict[int, int]:
    """Return the version that each of the two workers serves, by process id."""
    with each_worker(service) as clients:
        return {process: VERSION_OF.get(client.request(TARGET).body, 0) for process, client in clients.items()}


class Readers:
    """Threads that read the book on their own connections, and record the versions and processes."""

    def __init__(self, service: Service, count: int) -> None:
        self.processes: set[int] = set()
        self.failures: list[object] = []
        self.seen: list[list[int]] = [[] for _ in range(count)]
        self._service = service
        self._done = Event()
        self._threads = [Thread(target=self._read, args=(one,)) for one in self.seen]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def have_seen(self, number: int) -> bool:
        """Whether a reader has seen a version; True if one has failed, so that nothing waits for it."""
        return self.failures != [] or any(number in one for one in self.seen)

    def _read(self, seen: list[int]) -> None:
        try:
            with closing(Client(self._service.port)) as client:
                self.processes.add(client.request("/healthz").json["process"])
                while not self._done.is_set():
                    answer = client.request(TARGET)
                    assert answer.status == 200
                    seen.append(VERSION_OF[answer.body])
        except Exception as error:  # noqa: BLE001  # any exception is a failed request
            self.failures.append(error)


@pytest.mark.thorough
def test_no_request_fails_and_no_response_is_torn_while_a_book_changes(tmp_path: Path, recorded_order_books: Path):
    path = tmp_path / "market.db"
    assert invoke("publish", path, recorded_order_books).returncode == 0
    with (
        running(tmp_path, path, "--port", 0, "--workers", 2) as command,
        open_store(path, synchronous="normal") as store,
    ):
        eventually(lambda: command.stderr.count("listening on") == 2)
        service = command.service
        revision = store.publish(version(1)).revision
        eventually(lambda: list(served_versions(service).values()) == [1, 1])
        with Readers(service, 32) as readers:
            for number in range(2, VERSIONS + 1):
                revision = store.publish(version(number)).revision
                if number % 3 == 0:
                    eventually(partial(readers.have_seen, number))
            eventually(lambda: list(served_versions(service).values()) == [VERSIONS, VERSIONS])
        assert readers.failures == []
        assert readers.processes == served_versions(service).keys()
        assert all(one == sorted(one) for one in readers.seen), "a connection saw an older book after a newer one"
        assert len({number for one in readers.seen for number in one}) > VERSIONS // 4
        with each_worker(service) as clients:
            assert len({client.request("/trading-view/pair-list").body for client in clients.values()}) == 1
            assert {client.request("/healthz").json["revision"] for client in clients.values()} == {revision}
        assert command.end() == 0


def test_each_worker_logs_its_process_and_address(two: Running, store: Path):
    with each_worker(two.service) as clients:
        for process in clients:
            start, address = f"Z INFO market_index_cli[{process}]: ", f"http://127.0.0.1:{two.service.port}"
            assert f"{start}{store}: 13 pairs, 0 records rejected\n" in two.stderr
            assert f"{start}listening on {address}\n" in two.stderr


@pytest.mark.thorough
def test_a_worker_that_is_killed_is_replaced(two: Running):
    with each_worker(two.service) as clients:
        killed, left = clients
        os.kill(killed, signal.SIGKILL)
        assert clients[left].request("/trading-view/pair-list").status == 200
    eventually(lambda: f"worker {killed} ended (signal 9); starting another" in two.stderr)
    eventually(lambda: two.stderr.count("listening on") == 3)
    with each_worker(two.service) as again:
        assert left in again
        assert killed not in again


@pytest.mark.thorough
def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path, store: Path):
    with running(tmp_path, store, "--port", 0, "--workers", 2) as command:
        eventually(lambda: command.stderr.count("listening on") == 2)
        port = command.service.port
        command.end(signal.SIGKILL)

        def is_free() -> bool:
            try:
                socket.create_server(("127.0.0.1", port)).close()
            except OSError:
                return False
            return True

        eventually(is_free)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
def test_a_signal_ends_workers_that_load(tmp_path: Path, store: Path):
    with running(tmp_path, store, "--port", 0, "--workers", 3) as command:
        process = command.process.pid
        eventually(Path(f"/proc/{process}/task/{process}/children").read_text)
        assert command.end(signal.SIGINT) == 0
        assert "Traceback" not in command.stderr


@contextmanager
def stubborn() -> Iterator[subprocess.Popen[str]]:
    """Start a supervisor of a worker that ignores SIGTERM. At the end, that worker must have ended."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.market_index_cli.server.stubborn"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "working\n"
        yield process
        assert process.stdout.read() == "", "returns once the worker has ended"


@pytest.mark.thorough
def test_a_worker_that_ignores_sigterm_is_killed():
    with stubborn() as process:
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0


def test_a_pipe_with_several_workers_is_a_usage_error(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = invoke("serve", pipe, "--workers", 2)
    assert done.returncode == 2
    assert "can be read by only one process: omit --workers" in done.stderr


@pytest.mark.thorough
def test_standard_input_with_several_workers_is_a_usage_error():
    done = run("serve", "-", "--workers", 2, stdin="")
    assert done.returncode == 2
    assert "can be read by only one process: omit --workers" in done.stderr


def serve_and_end(_: socket.socket, on_serving: Callable[[], object], __: int) -> None:
    on_serving()


def test_a_worker_that_ends_is_replaced_a_while_after_its_start(caplog: pytest.LogCaptureFixture):
    def end() -> None:
        eventually(lambda: len(caplog.records) >= 2)
        os.kill(os.getpid(), signal.SIGTERM)

    ending = Thread(target=end)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ending.start()
        assert workers.supervise(serve_and_end, listener, 1, DEADLINE_SECONDS, restart_seconds=1.5) == 0
        ending.join()
    first, second, *_ = caplog.records
    assert "ended (exit code 0); starting another" in first.message
    assert second.created - first.created >= 1.5


def test_a_worker_that_ends_is_not_replaced_before_its_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    polls: list[float] = []

    def sleep(seconds: float) -> None:
        if not multiprocessing.active_children():
            polls.append(seconds)
        if len(polls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(seconds)

    monkeypatch.setattr(workers, "sleep", sleep)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert workers.supervise(serve_and_end, listener, 1, DEADLINE_SECONDS, restart_seconds=inf) == 0
    assert caplog.records == []


def fail(_: socket.socket, __: Callable[[], object], ___: int) -> None:
    raise SystemExit(3)


def test_a_first_worker_that_fails_before_it_serves_ends_all():
    """Runs in this process, because the coverage of a process can be lost when it is ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert workers.supervise(fail, listener, 2, DEADLINE_SECONDS) == 3


@pytest.mark.thorough
def test_a_store_that_no_worker_can_read_is_exit_code_3(tmp_path: Path, store: Path):
    """The file has the header of a store, so it can be opened, but no other content."""
    store.write_bytes(store.read_bytes()[:4096])
    done = run("serve", store, "--port", 0, "--workers", 2)
    assert done.returncode == 3
    assert f"{store} cannot be read: " in done.stderr
    assert "Traceback" not in done.stderr


def serve_as_worker(store: Path, listener: socket.socket) -> object:
    """Serve in this process, because the coverage of a worker can be lost when it ends. Return the exit code."""
    settings = serving.Settings(
        str(store),
        log_format="text",
        log_level="info",
        access_log=False,
        max_age=None,
        max_wait=30,
        max_stale=None,
        max_quiet=None,
        cors_origins=(),
        allowed_hosts=(),
        proxies=(),
        limits=ClientLimits(),
        workers=2,
        page=True,
        labels=b"{}",
        metrics=True,
    )
    with own_signals_and_logging(), pytest.raises(SystemExit) as ended:
        serving.serve_as_worker(settings, bytearray(8 * Counters.table_cells(1)), listener, lambda: None, 0)
    return ended.value.code


def test_a_worker_reports_in_one_line_a_store_that_it_cannot_read(store: Path, capsys: pytest.CaptureFixture[str]):
    store.write_bytes(store.read_bytes()[:4096])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert serve_as_worker(store, listener) == 3
    error = capsys.readouterr().err
    assert f" ERROR market_index_cli[{os.getpid()}]: {store} cannot be read: " in error
    assert error.count("\n") == 1


def test_a_worker_reports_in_one_line_an_address_that_is_taken_while_it_loads(
    store: Path, capsys: pytest.CaptureFixture[str]
):
    with socket.socket() as other, socket.socket() as listener:
        for one in (other, listener):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        listener.bind(other.getsockname())
        other.listen()
        assert serve_as_worker(store, listener) == 4
        port = other.getsockname()[1]
    error = capsys.readouterr().err
    assert error.endswith(f"]: cannot listen on 127.0.0.1 port {port}: Address already in use\n")
    assert "Traceback" not in error


@pytest.mark.thorough
def test_a_worker_that_ignores_sigterm_ends_when_its_supervisor_is_killed():
    with stubborn() as process:
        process.kill()
