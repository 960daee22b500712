"""Stores whose file, log or index is deleted or replaced while they are open."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event

import pytest

from market_index_feeds import Store, StoreError, open_feed, open_store
from market_index_feeds.sqlite import lock
from market_index_feeds.sqlite.lock import WriterLock
from market_index_feeds.sqlite.store import SqliteStore
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.sqlite.files import elsewhere, plain
from tests.waiting import DEADLINE_SECONDS, in_thread, raised_in_thread


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set once a store waits for the lock of its file."""
    waits = Event()

    def sleep(seconds: float) -> None:
        waits.set()
        time.sleep(seconds)

    monkeypatch.setattr(lock, "sleep", sleep)
    return waits


@contextmanager
def called_at(statement: str, store: Store, function: Callable[[], object]) -> Iterator[None]:
    """Call a function once, when the store has done its checks and begins to execute a statement."""
    assert isinstance(store, SqliteStore)
    assert store._open
    calls: list[object] = []

    def trace(executed: str) -> None:
        if executed == statement and not calls:
            calls.append(function())

    store._open.sqlite.set_trace_callback(trace)
    yield
    assert calls  # the sqlite3 module ignores errors of the function


@contextmanager
def index_replaced_at(statement: str, store: Store, path: Path) -> Iterator[None]:
    """Delete the index at a statement. Another process makes the next one, and has it open during the body."""
    script = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM books').fetchall();"
        "print(flush=True); sys.stdin.read()"
    )
    with ExitStack() as stack:

        def replace() -> None:
            Path(f"{path}-shm").unlink()
            command = [sys.executable, "-c", script, str(path)]
            other = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert other.stdout
            assert other.stdout.readline() == b"\n"

        with called_at(statement, store, replace):
            yield


class TestReplaced:
    """Deleted and replaced files."""

    def test_a_deleted_or_replaced_file_accepts_no_changes(self, store: Store, path: Path):
        store.publish(book(1, 1))
        kept = path.rename(path.with_name("kept.db"))
        for work in (lambda: store.publish(book(1, 2)), lambda: store.replace([book(1, 2)]), lambda: store.revision):
            with pytest.raises(StoreError, match=r"or its index \(-shm\) was deleted or replaced since it was opened"):
                work()
        path.write_bytes(b"")
        with pytest.raises(StoreError, match="deleted or replaced"):
            store.retract(pair(1))
        kept.rename(path)
        assert store.publish(book(1, 2)).revision == 2

    def test_a_file_replaced_during_the_wait_for_its_lock_is_not_written_to(
        self, path: Path, tmp_path: Path, waiting: Event
    ):
        raised: list[str] = []
        with open_store(path, wait=DEADLINE_SECONDS) as store, closing(WriterLock(path)) as other:
            store.publish(book(1, 1))
            with other.held(0):
                publishing = in_thread(lambda: raised.append(raised_in_thread(lambda: store.publish(book(1, 2)))))
                assert waiting.wait(DEADLINE_SECONDS)
                path.rename(tmp_path / "former.db")
                shutil.copyfile(tmp_path / "former.db", path)
            publishing.join(DEADLINE_SECONDS)
        assert "was deleted or replaced" in raised[0]

    def test_a_link_changed_to_another_store_is_noticed(self, store: Store, path: Path, tmp_path: Path):
        link = tmp_path / "current.db"
        link.symlink_to(path)
        with open_store(link) as linked:
            linked.publish(book(1, 1))
            open_store(tmp_path / "other.db").close()
            (tmp_path / "new").symlink_to(tmp_path / "other.db")
            (tmp_path / "new").rename(link)
            with pytest.raises(StoreError, match="was deleted or replaced"):
                linked.publish(book(1, 2))
        assert store.publish(book(1, 3)).revision == 2

    def test_a_removed_log_is_noticed_and_the_file_is_not_changed(self, store: Store, path: Path):
        store.publish(book(1, 1))
        before = path.read_bytes()
        Path(f"{path}-wal").unlink()
        with pytest.raises(
            StoreError, match=r"its log \(-wal\) or its index \(-shm\) was .*: nothing was written; close"
        ):
            store.publish(book(1, 2))
        store.close()
        assert path.read_bytes() == before

    def test_a_removed_index_is_noticed_and_the_log_is_not_changed(self, store: Store, path: Path):
        """SQLite would copy the log by the previous index, although another process has written into it since."""
        store.publish(book(1, 1))
        Path(f"{path}-shm").unlink()
        script = (
            "import os, sys\n"
            "from market_index_feeds import open_store\n"
            "from tests.market_index_feeds.made_up import book\n"
            "store = open_store(sys.argv[1])\n"
            "for spot in range(2, 50):\n"
            "    store.publish(*(book(number, spot) for number in range(20)))\n"
            "os._exit(0)\n"
        )
        elsewhere(script, path)
        with pytest.raises(StoreError, match="nothing was written; close the store and open it again"):
            store.publish(book(1, 2))
        with pytest.raises(StoreError, match="cannot be opened"):
            open_store(path)  # SQLite would use the former index, which this process has open
        store.close()
        assert spots(open_feed(path).read()) == dict.fromkeys(range(20), "49")
        assert plain(path, "PRAGMA integrity_check") == [("ok",)]
        with open_store(path) as again:
            assert again.publish(book(1, 50)).revision == 50

    @pytest.mark.parametrize("is_copied", [False, True])
    def test_a_change_during_which_the_index_is_replaced_is_not_acknowledged_and_harms_no_later_one(
        self, store: Store, path: Path, is_copied: bool
    ):
        """The next index lacks the change. If the log was copied into the file, the change overwrites it."""
        store.publish(*(book(number, 1) for number in range(1, 100)))
        store.publish(book(1, 1))
        if is_copied:
            plain(path, "PRAGMA wal_checkpoint")
        with index_replaced_at("COMMIT", store, path):
            with pytest.raises(StoreError, match="while it was written to: the change may be lost; close the store"):
                store.publish(book(2, 2))
            store.close()
            with open_store(path) as again:
                assert [again.publish(book(3, spot)).revision for spot in (1, 2, 3)] == [4, 5, 6]
        assert spots(open_feed(path).read()) == dict.fromkeys(range(1, 100), "1") | {2: "2", 3: "3"}
        assert plain(path, "PRAGMA integrity_check") == [("ok",)]

    def test_an_index_that_is_replaced_while_a_store_is_closed_harms_no_later_change(self, store: Store, path: Path):
        """The next index refers to the log, which is emptied."""
        store.publish(*(book(number, 1) for number in range(1, 100)))
        with index_replaced_at("PRAGMA wal_checkpoint(TRUNCATE)", store, path):
            store.close()
            with open_store(path) as again:
                assert again.publish(book(2, 2)).revision == 2
        assert spots(open_feed(path).read()) == dict.fromkeys(range(1, 100), "1") | {2: "2"}
        assert plain(path, "PRAGMA integrity_check") == [("ok",)]

    def test_a_change_during_which_the_log_is_removed_is_not_acknowledged(self, store: Store, path: Path):
        store.publish(book(1, 1))
        with (
            called_at("COMMIT", store, Path(f"{path}-wal").unlink),
            pytest.raises(StoreError, match="while it was written to: the change may be lost; close the store"),
        ):
            store.publish(book(2, 2))

    def test_a_store_is_not_created_beside_the_log_of_a_previous_one(self, store: Store, path: Path):
        store.publish(book(1, 1))
        path.unlink()
        with pytest.raises(
            StoreError, match=r"the file is missing, but its log \(market.db-wal\) exists: put the file back"
        ):
            open_store(path)
        assert not path.exists()

    def test_closing_a_replaced_store_affects_no_other_process(self, store: Store, path: Path, tmp_path: Path):
        """Copying the log would copy the log of the other file into this one, and empty it."""
        store.publish(book(1, 1))
        path.rename(tmp_path / "former.db")
        for name in ("market.db-wal", "market.db-shm"):
            path.with_name(name).rename(tmp_path / name.replace("market", "former"))
        with open_store(path) as other:
            other.publish(book(2, 2))
            store.close()
            assert spots(open_feed(path).read()) == {2: "2"}
            assert other.publish(book(3, 3)).revision == 2
        assert spots(open_feed(path).read()) == {2: "2", 3: "3"}

    def test_closing_a_replaced_store_does_not_empty_the_log_of_the_new_one(
        self, store: Store, path: Path, tmp_path: Path
    ):
        """If the log stayed, both have the same log open: SQLite finds it by its name."""
        store.publish(book(1, 1))
        shutil.copyfile(path, tmp_path / "copy")
        store.publish(book(1, 2))
        (tmp_path / "copy").rename(path)
        script = (
            "import sys\n"
            "from market_index_feeds import open_store\n"
            "from tests.market_index_feeds.made_up import book\n"
            "store = open_store(sys.argv[1])\n"
            "print(store.publish(book(9, 9)).revision, flush=True)\n"
            "sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdin
            assert other.stdout
            assert other.stdout.readline() == "3\n"
            store.close()
            assert (
                elsewhere(
                    "import sys; from market_index_feeds import open_feed; print(len(open_feed(sys.argv[1]).read()))",
                    path,
                )
                == "2\n"
            )
            other.stdin.close()
