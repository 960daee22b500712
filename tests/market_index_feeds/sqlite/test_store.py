"""Publishing into a file: what was acknowledged is stored, and publishers take turns."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, Receipt, Store, StoreBusy, StoreError, open_feed, open_store
from market_index_feeds.sqlite import lock
from market_index_feeds.sqlite import store as store_module
from market_index_feeds.sqlite.lock import Busy, WriterLock
from market_index_feeds.sqlite.revisions import Change
from market_index_feeds.sqlite.store import SqliteStore
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.sqlite.files import elsewhere, plain
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread, raised_in_thread


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set once a store waits for the lock of its file."""
    waits = Event()

    def sleep(seconds: float) -> None:
        waits.set()
        time.sleep(seconds)

    monkeypatch.setattr(lock, "sleep", sleep)
    return waits


def is_held(probe: WriterLock) -> bool:
    """Whether another store holds the lock of the file."""
    try:
        with probe.held(0):
            return False
    except Busy:
        return True


class TestPublishing:
    """What one change does, and what it does not."""

    def test_published_books_go_live_with_one_revision_per_change(self, store: Store, feed: Feed, live: LiveIndex):
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        assert store.publish(book(4, 4), book(2, "2.5")) == Receipt(2, published=2)
        eventually(lambda: spots(live) == {1: "1", 2: "2.5", 3: "3", 4: "4"})
        assert store.retract(pair(1), pair(9)) == Receipt(3, retracted=1)
        eventually(lambda: spots(live) == {2: "2.5", 3: "3", 4: "4"})
        assert store.publish(book(1, 7)) == Receipt(4, published=1)
        eventually(lambda: spots(live) == {1: "7", 2: "2.5", 3: "3", 4: "4"})
        eventually(lambda: feed.revision == store.revision == 4)

    def test_using_a_closed_store_is_an_error(self, path: Path):
        store = open_store(path)
        assert repr(store) == f"<SqliteStore {path}>"
        store.publish(book(1))
        store.close()
        store.close()
        for work in (lambda: store.publish(book(1)), lambda: store.retract(pair(1)), lambda: store.revision):
            with pytest.raises(StoreError, match=r"market\.db is closed"):
                work()
        assert {one.name for one in path.parent.iterdir()} == {"market.db", "market.db-lock"}

    def test_synchronous_sets_the_durability(self, path: Path):
        with pytest.raises(ValueError, match="synchronous must be 'full' or 'normal', got 'off'"):
            open_store(path, synchronous="off")  # type: ignore[arg-type]
        assert not path.exists()


class TestReplacing:
    """Making some books the whole of a store."""

    def test_pairs_that_are_not_named_are_retracted_in_the_same_change(self, store: Store, feed: Feed, live: LiveIndex):
        seen = []
        assert store.replace([book(3, 3), book(2, 9), book(5, 5)]) == Receipt(2, published=2, retracted=1)
        eventually(lambda: seen.append(spots(live)) or 5 in spots(live))  # type: ignore[func-returns-value]  # None goes on
        assert all(one in ({1: "1", 2: "2", 3: "3"}, {2: "9", 3: "3", 5: "5"}) for one in seen)
        assert feed.books == 5, "an equal book must not be read again"


class TestWriters:
    """Several writers at the same time take turns, or get an error."""

    def test_processes_take_turns_and_each_change_has_its_own_revision(self, path: Path):
        script = (
            "import sys\n"
            "from tests.market_index_feeds.made_up import book\n"
            "from market_index_feeds import open_store\n"
            "with open_store(sys.argv[1], synchronous='normal', wait=60) as store:\n"
            "    for spot in range(1, 51):\n"
            "        print(store.publish(book(int(sys.argv[2]), spot), book(9, spot)).revision)\n"
        )
        printed: list[str] = []
        threads = [Thread(target=lambda n=n: printed.append(elsewhere(script, path, n))) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        revisions = [[int(one) for one in text.split()] for text in printed]
        assert all(one == sorted(one) for one in revisions)
        assert sorted(chain.from_iterable(revisions)) == list(range(1, 151))
        assert spots(open_feed(path).read()) == {0: "50", 1: "50", 2: "50", 9: "50"}
        assert plain(path, "PRAGMA integrity_check") == [("ok",)]

    @pytest.mark.parametrize("what", ["transaction", "lock"])
    def test_a_writer_that_waits_too_long_gets_an_error_and_nothing_is_lost(self, store: Store, path: Path, what: str):
        store.publish(book(1, 1))
        with ExitStack() as holding:
            if what == "transaction":
                other = holding.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
                other.execute("BEGIN IMMEDIATE")
            else:
                other_lock = holding.enter_context(closing(WriterLock(path)))
                holding.enter_context(other_lock.held(0))
            for work in (lambda: store.publish(book(1, 2)), lambda: store.replace([]), lambda: store.retract(pair(1))):
                with pytest.raises(StoreBusy, match=r"was not written to: others have been writing for 0\.2 seconds"):
                    work()
            assert spots(open_feed(path).read()) == {1: "1"}
        assert store.publish(book(1, 3)) == Receipt(2, published=1)

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

    def test_a_removed_log_is_noticed(self, store: Store, path: Path):
        store.publish(book(1, 1))
        Path(f"{path}-wal").unlink()
        with pytest.raises(
            StoreError, match=r"its log \(-wal\) or its index \(-shm\) was .*: nothing was written; close"
        ):
            store.publish(book(1, 2))

    def test_a_removed_log_is_copied_into_the_file_when_its_publisher_closes(
        self, store: Store, feed: Feed, path: Path
    ):
        log = Path(f"{path}-wal")
        log.unlink()
        eventually(log.exists)  # the reader has made another one, which is empty
        store.close()
        feed.close()
        assert spots(open_feed(path).read()) == {1: "1", 2: "2", 3: "3"}

    def test_a_removed_index_is_noticed_and_the_log_is_not_changed(self, store: Store, path: Path):
        """SQLite would copy the log by the former index, although another process has written into it since."""
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

    def test_a_change_is_reported_as_written_although_its_index_cannot_be_repaired(
        self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        store.publish(book(1, 1))
        index = Path(f"{path}-shm")
        require_in_place, checks = SqliteStore._require_in_place, []

        def require(store: SqliteStore) -> None:
            require_in_place(store)
            checks.append(store)
            if len(checks) == 1:  # before it is written
                index.unlink()
                index.mkdir()

        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "_require_in_place", require)
            message = r"was written to \(revision 2\), but its index .* cannot be removed: .*; the change may be lost"
            with pytest.raises(StoreError, match=message):
                store.publish(book(2, 2))
        store.close()
        index.rmdir()
        assert spots(open_feed(path).read()) == {1: "1", 2: "2"}

    def test_an_index_removed_during_a_change_loses_nothing(
        self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Another process makes the next index before the change is in the log, so that it lacks the change."""
        script = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); print(*c.execute('SELECT count(*) FROM books'));"
            "print(flush=True); sys.stdin.read()"
        )
        store.publish(book(1, 1))
        require_in_place, checks = SqliteStore._require_in_place, []
        with ExitStack() as stack:

            def require(store: SqliteStore) -> None:
                require_in_place(store)
                checks.append(store)
                if len(checks) == 1:  # before it is written
                    Path(f"{path}-shm").unlink()
                    command = [sys.executable, "-c", script, str(path)]
                    other = stack.enter_context(
                        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                    )
                    assert other.stdout
                    assert other.stdout.readline() == b"(1,)\n"

            with monkeypatch.context() as patch:
                patch.setattr(SqliteStore, "_require_in_place", require)
                assert store.publish(book(2, 2)).revision == 2
            store.close()
            with open_store(path) as again:
                assert again.publish(book(3, 3)).revision == 3
            assert spots(open_feed(path).read()) == {1: "1", 2: "2", 3: "3"}

    def test_a_change_during_which_the_log_is_removed_is_not_acknowledged(
        self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        store.publish(book(1, 1))
        finish = Change.finish

        def finish_late(change: Change) -> None:
            finish(change)
            monkeypatch.setattr(SqliteStore, "_require_in_place", lambda _: Path(f"{path}-wal").unlink())

        monkeypatch.setattr(Change, "finish", finish_late)
        with pytest.raises(StoreError, match="while it was written to: the change may be lost; close the store"):
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
        """To put the log into the file would put that of the other into this one, and empty it."""
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
        """Where the log stayed, both have the same one open: SQLite goes by its name."""
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

    def test_an_interrupted_wait_for_the_lock_leaves_nothing_behind(
        self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        with closing(WriterLock(path)) as other, other.held(0), monkeypatch.context() as waiting:
            waiting.setattr(lock, "sleep", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.publish(book(1, 1))
        with open_store(path) as other_store:
            assert other_store.publish(book(1, 2)).revision == 1
        assert raised_in_thread(lambda: store.publish(book(1, 3))) == ""

    @pytest.mark.parametrize("begins", [False, True])
    def test_an_interrupted_wait_for_a_transaction_leaves_nothing_behind(
        self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, begins: bool
    ):
        """A signal handler runs when the call of SQLite returns: with an error, or with the transaction begun."""

        class Interrupted(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                try:
                    return super().execute(sql, parameters)
                finally:
                    if sql == "BEGIN IMMEDIATE":
                        raise KeyboardInterrupt

        connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Interrupted))
        with open_store(path, wait=0.01) as interrupted, closing(connect(path, isolation_level=None)) as other:
            if not begins:
                other.execute("BEGIN IMMEDIATE")
            with pytest.raises(KeyboardInterrupt):
                interrupted.publish(book(1, 1))
            if not begins:
                other.execute("COMMIT")
            assert store.publish(book(1, 2)).revision == 1
            assert raised_in_thread(lambda: interrupted.revision) == ""

    def test_the_timeout_can_be_infinite(self, path: Path):
        with (
            open_store(path, wait=float("inf")) as store,
            closing(WriterLock(path)) as probe,
            closing(sqlite3.connect(path, isolation_level=None)) as other,
        ):
            other.execute("BEGIN IMMEDIATE")
            publishing = in_thread(lambda: store.publish(book(1, 1)))
            eventually(lambda: is_held(probe))
            assert publishing.is_alive()
            other.execute("COMMIT")
            publishing.join(DEADLINE_SECONDS)
            assert spots(open_feed(path).read()) == {1: "1"}

    def test_threads_of_one_store_wait_no_longer_than_the_timeout(self, store: Store):
        with store._lock:  # type: ignore[attr-defined]  # as a thread that publishes has it
            assert "StoreBusy" in raised_in_thread(lambda: store.publish(book(1)))

    def test_a_lock_whose_file_was_removed_is_exclusive_again(self, path: Path):
        path.touch()
        with closing(WriterLock(path)) as one, closing(WriterLock(path)) as other:
            Path(f"{path}-lock").unlink()
            with one.held(0.5), pytest.raises(Busy), other.held(0.05):
                pass
            one.close()

    @pytest.mark.parametrize(("mode", "of_lock"), [(0o644, 0o600), (0o664, 0o660), (0o600, 0o600)])
    def test_only_users_who_may_write_the_store_can_hold_the_lock(
        self, store: Store, path: Path, mode: int, of_lock: int
    ):
        store.close()
        lock_path = Path(f"{path}-lock")
        path.chmod(mode)
        for of_former in (None, 0o666):
            lock_path.unlink() if of_former is None else lock_path.chmod(of_former)
            open_store(path).close()
            assert stat.S_IMODE(lock_path.stat().st_mode) == of_lock

    def test_the_mode_of_a_file_with_several_names_is_not_changed(self, store: Store, path: Path, tmp_path: Path):
        store.close()
        other = tmp_path / "other"
        other.touch(0o644)
        Path(f"{path}-lock").unlink()
        Path(f"{path}-lock").hardlink_to(other)
        open_store(path).close()
        assert stat.S_IMODE(other.stat().st_mode) == 0o644

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (
                lambda lock: lock.symlink_to(lock.with_name("other")),
                "market.db-lock must be a regular file, got a link",
            ),
            (os.mkfifo, "the lock file must be a regular file"),
            (Path.mkdir, "Is a directory"),
        ],
    )
    def test_the_lock_must_be_a_regular_file(
        self, store: Store, path: Path, make: Callable[[Path], object], reason: str
    ):
        store.close()
        lock_path = Path(f"{path}-lock")
        lock_path.unlink()
        make(lock_path)
        with pytest.raises(StoreError, match=reason):
            open_store(path)
        assert not path.with_name("other").exists()

    def test_a_lock_that_cannot_be_reopened_affects_no_other_file(self, store: Store, path: Path, tmp_path: Path):
        store.publish(book(1, 1))
        lock_path = Path(f"{path}-lock")
        lock_path.unlink()
        lock_path.symlink_to(tmp_path / "other")
        for _ in range(2):
            with pytest.raises(StoreError, match="must be a regular file, got a link"):
                store.publish(book(1, 2))
        lock_path.unlink()
        assert store.publish(book(1, 3)).revision == 2

    def test_all_waits_of_a_change_have_one_deadline(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        """The clock advances only while a change waits for the lock of publishers."""
        now = [0.0]
        for module in (lock, store_module):
            monkeypatch.setattr(module, "monotonic", lambda: now[0])
        waits: list[float] = []
        set_timeout = store_module._set_timeout

        def noting(connection: sqlite3.Connection, seconds: float) -> None:
            waits.append(seconds)
            set_timeout(connection, 0)

        monkeypatch.setattr(store_module, "_set_timeout", noting)
        with open_store(path, wait=10) as store, closing(sqlite3.connect(path, isolation_level=None)) as writing:
            writing.execute("BEGIN IMMEDIATE")
            with ExitStack() as holding:
                other = holding.enter_context(closing(WriterLock(path)))
                holding.enter_context(other.held(0))

                def sleep(_: float) -> None:
                    now[0] = 4.0
                    holding.close()

                monkeypatch.setattr(lock, "sleep", sleep)
                with pytest.raises(StoreBusy):
                    store.publish(book(1))
            writing.execute("COMMIT")
        assert waits == [6, 0.1]

    def test_a_forked_process_gets_an_error_and_changes_nothing(self, store: Store, path: Path):
        store.publish(book(1, 1))
        script = (
            "import os, sys\n"
            "from market_index_feeds import StoreError, open_store\n"
            "from tests.market_index_feeds.made_up import book\n"
            "store = open_store(sys.argv[1])\n"
            "if child := os.fork():\n"
            "    os.waitpid(child, 0)\n"
            "    print(store.publish(book(2, 2)).revision)\n"
            "    store.close()\n"
            "else:\n"
            "    try:\n"
            "        store.publish(book(3, 3))\n"
            "    except StoreError as error:\n"
            "        print(error, flush=True)\n"
            "    store.close()\n"
            "    with open_store(sys.argv[1]) as own:\n"
            "        print(own.publish(book(4, 4)).revision, flush=True)\n"
            "    os._exit(0)\n"
        )
        error, *revisions = elsewhere(script, path).splitlines()
        assert error == f"{path} was opened before a fork: open it in the process that publishes"
        assert revisions == ["2", "3"]
        assert spots(open_feed(path).read()) == {1: "1", 2: "2", 4: "4"}

    def test_a_forked_process_does_not_hold_the_lock_of_its_killed_parent(self, store: Store, path: Path):
        script = (
            "import os, signal, sys\n"
            "from market_index.freshness import UNKNOWN\n"
            "from market_index_feeds import open_store\n"
            "store = open_store(sys.argv[1])\n"
            "with store._change(UNKNOWN, keeps_as_of=True):\n"
            "    if os.fork() == 0:\n"
            "        print('forked', flush=True)\n"
            "        sys.stdin.read()\n"
            "        print('ended', flush=True)\n"
            "        os._exit(0)\n"
            "    signal.pause()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as parent:
            assert parent.stdin
            assert parent.stdout
            assert parent.stdout.readline() == "forked\n"
            parent.kill()
            parent.wait(DEADLINE_SECONDS)
            assert store.publish(book(1, 1)).revision == 1
            parent.stdin.close()
            assert parent.stdout.readline() == "ended\n", "the forked process had ended before"

    def test_two_processes_that_create_the_file_at_the_same_time_create_one(self, path: Path):
        together = Barrier(4)
        receipts = []

        def publish(number: int) -> None:
            together.wait()
            with open_store(path) as store:
                receipts.append(store.publish(book(number)).revision)

        threads = [Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(receipts) == [1, 2, 3, 4]
        assert {one.name for one in path.parent.iterdir()} == {"market.db", "market.db-lock"}
        assert len(spots(open_feed(path).read())) == 4
