"""A real service serves other clients while hostile clients attack it."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen

from market_index_feeds import Store, open_store
from tests.command import COMMAND, Running
from tests.feeds.made_up import book
from tests.service import Client
from tests.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.thorough

PAIR_LIST: Final = "/trading-view/pair-list"
HEAD: Final = f"GET {PAIR_LIST} HTTP/1.1\r\nHost: test\r\n".encode()
MOST_BYTES: Final = 300 * 1024 * 1024


@frozen
class Target:
    """A store, and the command that serves it."""

    running: Running
    store: Store
    port: int

    def shows(self, spot: int) -> None:
        """Publish a book with this spot price, and wait until a new client sees it and the service is healthy."""
        self.store.publish(book(1, spot))
        with closing(Client(self.port)) as honest:
            eventually(lambda: honest.request(PAIR_LIST).json["pairs"][0]["last_spot"] == str(spot))
            assert honest.request("/healthz").status == 200


@contextmanager
def target(folder: Path, open_files: int) -> Iterator[Target]:
    """Serve a store by a process with a limit of open files."""
    log = folder / "log"
    words = ["bash", "-c", f'ulimit -n {open_files}; exec "$0" serve "$1" --port 0', COMMAND, folder / "market.db"]
    with open_store(folder / "market.db") as store, log.open("wb") as errors:
        store.publish(book(1, 1))
        process = subprocess.Popen(list(map(str, words)), stderr=errors)
        try:
            running = Running(process, log)
            yield Target(running, store, running.service.port)
            assert running.end() == 0
            assert "Traceback" not in running.stderr
        finally:
            process.kill()
            process.wait(DEADLINE_SECONDS)


@pytest.mark.parametrize("piece", [b"X: %s\r\n" % (b"x" * 1000) * 64, b"x" * 65536], ids=["fields", "field"])
def test_a_head_without_end_is_rejected(tmp_path: Path, piece: bytes):
    with target(tmp_path, 1024) as attacked, closing(Client(attacked.port)) as hostile:
        hostile.socket.sendall(HEAD)
        sent = 0
        with suppress(ConnectionError):
            while sent < MOST_BYTES:
                hostile.socket.sendall(piece)
                sent += len(piece)
        assert sent < MOST_BYTES
        attacked.shows(2)


@pytest.mark.parametrize(("open_files", "connections"), [(128, 200), (1024, 1000)])
def test_changes_are_served_while_half_open_connections_reach_the_limit(
    tmp_path: Path, open_files: int, connections: int
):
    with target(tmp_path, open_files) as attacked, ExitStack() as stack:
        for _ in range(connections):
            with suppress(ConnectionError):  # the server may close any of them
                stack.enter_context(closing(Client(attacked.port))).socket.sendall(HEAD)
        for spot in range(2, 5):
            attacked.shows(spot)


def test_a_burst_of_connections_leaves_file_descriptors_for_feeds(tmp_path: Path):
    with target(tmp_path, 128) as attacked, ExitStack() as stack:
        for _ in range(1000):
            connection = stack.enter_context(closing(socket.socket()))
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", attacked.port))
        # This connection is accepted after all others.
        attacked.shows(2)
        assert "Too many open files" not in attacked.running.stderr
