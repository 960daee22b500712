"""Readers in their own processes: some join late, and one is suspended."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from market_index_feeds import open_store
from tests import nats
from tests.market_index_feeds.made_up import book
from tests.waiting import eventually

pytestmark = pytest.mark.thorough

READER = """
import sys
from market_index import LiveIndex
from market_index_feeds import open_feed
from tests.market_index_feeds.made_up import spots
from tests.waiting import eventually
live = LiveIndex()
with open_feed(sys.argv[1]) as feed:
    feed.start(live)
    print("joined", flush=True)
    wanted = eval(sys.stdin.readline())
    eventually(lambda: spots(live) == wanted)
    print(feed.revision, flush=True)
"""


class Process:
    """A reader in its own process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read_line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def revision_showing(self, wanted: Mapping[int, str | None]) -> int:
        """Return its revision once it shows these spots."""
        assert self._process.stdin
        self._process.stdin.write(f"{wanted!r}\n")
        self._process.stdin.flush()
        return int(self.read_line())


@contextmanager
def reader(url: str) -> Iterator[Process]:
    with subprocess.Popen(
        [sys.executable, "-c", READER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            found = Process(process)
            assert found.read_line() == "joined\n"
            yield found
        finally:
            process.kill()


def test_readers_that_join_during_ten_thousand_publishes_show_all_books(bucket: str):
    with open_store(bucket) as store, ExitStack() as stack:
        store.publish(*(book(number, 1) for number in range(500)))
        readers = []
        published = 0

        def publish() -> None:
            nonlocal published
            for spot in range(2, 22):
                store.publish(*(book(number, spot) for number in range(500)))
                published += 500

        publishing = Thread(target=publish)
        publishing.start()
        for some in (1000, 4000, 8000):
            eventually(lambda some=some: published >= some)  # type: ignore[misc]  # a default has no type
            readers.append(stack.enter_context(reader(bucket)))
        publishing.join()
        for one in readers:
            assert one.revision_showing(dict.fromkeys(range(500), "21")) == store.revision


def test_a_reader_that_was_suspended_shows_all_books(tmp_path: Path):
    """The server disconnects the reader, and drops its unread messages."""
    configuration = 'ping_interval: "1s"\nping_max: 1\ndebug: true\nwrite_deadline: "500ms"'
    with nats.served(tmp_path / "slow", configuration) as server:
        url = server.bucket("books")
        with open_store(url) as store, reader(url) as suspended:
            store.publish(book(1, 1))
            suspended.send(signal.SIGSTOP)
            noise = [nats.noise(number) for number in range(60)]
            for _ in range(4):
                store.publish(*noise)
            eventually(lambda: "Stale Client Connection" in server.log or "Slow Consumer" in server.log)
            suspended.send(signal.SIGCONT)
            wanted = {1: "1"} | dict.fromkeys(range(1000, 1060), "1")
            assert suspended.revision_showing(wanted) == store.revision
