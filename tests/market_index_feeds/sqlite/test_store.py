"""The embedded store, on real files: what was acknowledged is there, and what is there goes live."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from threading import Barrier, Thread

import pytest
from attrs import frozen
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from market_index import LiveIndex, PairNotFound, wire
from market_index_feeds import (
    Feed,
    FeedError,
    Receipt,
    Store,
    StoreBusy,
    StoreError,
    open_feed,
    open_store,
    sqlite_file,
)
from tests.market_index_feeds.followed import Followed
from tests.market_index_feeds.made_up import book, pair, spots
from tests.waiting import eventually, raised_in_thread


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "market.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path, wait=0.2) as store:
        yield store


def plain(path: Path, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    """What the standard library's own sqlite3 makes of the file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_function("forged", 2, lambda revision, body: sqlite_file.digest_of(revision, body.encode()))
        return connection.execute(statement, parameters).fetchall()


def elsewhere(script: str, *arguments: object) -> str:
    """Run a script in another process, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestPublishing:
    """What one change does, and what it does not."""

    def test_what_is_published_goes_live_under_one_revision_a_change(self, store: Store, feed: Feed, live: LiveIndex):
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        assert store.publish(book(4, 4), book(2, "2.5")) == Receipt(2, published=2)
        eventually(lambda: spots(live) == {1: "1", 2: "2.5", 3: "3", 4: "4"})
        assert store.retract(pair(1), pair(9)) == Receipt(3, retracted=1)
        eventually(lambda: spots(live) == {2: "2.5", 3: "3", 4: "4"})
        assert store.publish(book(1, 7)) == Receipt(4, published=1)
        eventually(lambda: spots(live) == {1: "7", 2: "2.5", 3: "3", 4: "4"})
        eventually(lambda: feed.revision == store.revision == 4)

    def test_a_closed_store_says_so(self, path: Path):
        store = open_store(path)
        assert repr(store) == f"<SqliteStore {path}>"
        store.publish(book(1))
        store.close()
        store.close()
        for work in (lambda: store.publish(book(1)), lambda: store.retract(pair(1)), lambda: store.revision):
            with pytest.raises(StoreError, match=r"market\.db is closed"):
                work()
        assert {one.name for one in path.parent.iterdir()} == {"market.db", "market.db-lock"}

    def test_how_safe_it_is_to_be_can_be_said(self, path: Path):
        with pytest.raises(ValueError, match="synchronous must be 'full' or 'normal', not 'off'"):
            open_store(path, synchronous="off")  # type: ignore[arg-type]
        assert not path.exists()


class TestReplacing:
    """Making some books the whole of a store."""

    def test_what_is_not_named_is_retracted_in_the_same_change(self, store: Store, feed: Feed, live: LiveIndex):
        seen = []
        assert store.replace([book(3, 3), book(2, 9), book(5, 5)]) == Receipt(2, published=2, retracted=1)
        eventually(lambda: seen.append(spots(live)) or 5 in spots(live))  # type: ignore[func-returns-value]  # None goes on
        assert all(one in ({1: "1", 2: "2", 3: "3"}, {2: "9", 3: "3", 5: "5"}) for one in seen)
        assert feed.books == 5, "the book that stood there already was not read again"


class TestWriters:
    """Several at a time: they take turns, or one is told."""

    def test_processes_take_turns_and_each_change_has_its_own_revision(self, path: Path):
        script = (
            "import sys\n"
            "from tests.market_index_feeds.made_up import book\n"
            "from market_index_feeds import open_store\n"
            "with open_store(sys.argv[1], synchronous='normal', wait=60) as store:\n"
            "    for spot in range(1, 101):\n"
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
        assert sorted(chain.from_iterable(revisions)) == list(range(1, 301))
        assert spots(open_feed(path).read()) == {0: "100", 1: "100", 2: "100", 9: "100"}
        assert plain(path, "PRAGMA integrity_check") == [("ok",)]

    @pytest.mark.parametrize("what", ["transaction", "lock"])
    def test_one_that_waits_too_long_is_told_and_nothing_is_lost(self, store: Store, path: Path, what: str):
        store.publish(book(1, 1))
        with ExitStack() as holding:
            if what == "transaction":
                other = holding.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
                other.execute("BEGIN IMMEDIATE")
            else:
                other_lock = holding.enter_context(closing(sqlite_file.WriterLock(path)))
                holding.enter_context(other_lock.held(0))
            for work in (lambda: store.publish(book(1, 2)), lambda: store.replace([]), lambda: store.retract(pair(1))):
                begun = time.monotonic()
                with pytest.raises(StoreBusy, match=r"was not written to: others have been writing for 0\.2 seconds"):
                    work()
                assert 0.15 < time.monotonic() - begun < 5
            assert spots(open_feed(path).read()) == {1: "1"}
        assert store.publish(book(1, 3)) == Receipt(2, published=1)

    def test_a_file_that_was_deleted_or_replaced_takes_no_more(self, store: Store, path: Path):
        store.publish(book(1, 1))
        kept = path.rename(path.with_name("kept.db"))
        for work in (lambda: store.publish(book(1, 2)), lambda: store.replace([book(1, 2)]), lambda: store.revision):
            with pytest.raises(StoreError, match=r"was deleted or replaced since it was opened, or its log"):
                work()
        path.write_bytes(b"")
        with pytest.raises(StoreError, match="deleted or replaced"):
            store.retract(pair(1))
        kept.rename(path)
        assert store.publish(book(1, 2)).revision == 2

    def test_one_that_is_replaced_while_it_is_waited_for_takes_nothing(self, store: Store, path: Path, tmp_path: Path):
        store.publish(book(1, 1))
        store._wait = 20  # type: ignore[attr-defined]
        raised: list[BaseException] = []

        def publish() -> None:
            try:
                store.publish(book(1, 2))
            except StoreError as error:
                raised.append(error)

        with closing(sqlite_file.WriterLock(path)) as lock:
            with lock.held(0):
                publishing = Thread(target=publish)
                publishing.start()
                time.sleep(0.1)
                path.rename(tmp_path / "former.db")
                shutil.copyfile(tmp_path / "former.db", path)
            publishing.join(20)
        assert "was deleted or replaced" in str(raised)

    def test_a_link_that_is_switched_to_another_store_is_noticed(self, store: Store, path: Path, tmp_path: Path):
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

    def test_a_log_that_was_removed_is_noticed(self, store: Store, path: Path):
        store.publish(book(1, 1))
        Path(f"{path}-wal").unlink()
        with pytest.raises(StoreError, match=r"or its log \(-wal\) was: nothing was written"):
            store.publish(book(1, 2))

    def test_to_close_one_that_was_replaced_costs_nobody_anything(self, store: Store, path: Path, tmp_path: Path):
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

    def test_to_close_one_that_was_replaced_does_not_empty_the_log_of_the_one_in_its_place(
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

    def test_an_interrupt_while_it_waits_leaves_nothing_behind(self, store: Store, path: Path):
        store.publish(book(1, 1))

        class Interrupted(Exception):
            pass

        def interrupt(*_: object) -> None:
            raise Interrupted

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                for delay in (0.05, 0.1, 0.19, 0.2, 0.21):
                    other.execute("BEGIN IMMEDIATE")
                    signal.setitimer(signal.ITIMER_REAL, delay)
                    with pytest.raises((Interrupted, StoreBusy)):
                        store.publish(book(1, 2))
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    other.execute("COMMIT")
                    store.publish(book(1, 3))
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_it_can_wait_for_ever(self, path: Path):
        with (
            open_store(path, wait=float("inf")) as store,
            closing(sqlite3.connect(path, isolation_level=None)) as other,
        ):
            other.execute("BEGIN IMMEDIATE")
            publishing = Thread(target=lambda: store.publish(book(1, 1)))
            publishing.start()
            time.sleep(0.2)
            assert publishing.is_alive()
            other.execute("COMMIT")
            publishing.join(20)
            assert spots(open_feed(path).read()) == {1: "1"}

    def test_threads_of_one_store_wait_no_longer_than_said(self, store: Store):
        with store._turn:  # type: ignore[attr-defined]  # as a thread that publishes has it
            assert "StoreBusy" in raised_in_thread(lambda: store.publish(book(1)))

    def test_a_lock_whose_file_was_removed_keeps_others_out_again(self, path: Path):
        with closing(sqlite_file.WriterLock(path)) as one, closing(sqlite_file.WriterLock(path)) as other:
            Path(f"{path}-lock").unlink()
            with one.held(0.5), pytest.raises(sqlite_file.Busy), other.held(0.05):
                pass
            one.close()

    def test_a_forked_process_is_told_and_harms_nothing(self, store: Store, path: Path):
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
        told, *revisions = elsewhere(script, path).splitlines()
        assert told == f"{path} was opened before a fork: open it in the process that publishes"
        assert revisions == ["2", "3"]
        assert spots(open_feed(path).read()) == {1: "1", 2: "2", 4: "4"}

    def test_a_forked_process_does_not_hold_the_lock_of_one_that_was_killed(self, store: Store, path: Path):
        script = (
            "import os, signal, sys, time\n"
            "from market_index_feeds import open_store\n"
            "store = open_store(sys.argv[1])\n"
            "with store._change():\n"
            "    if os.fork() == 0:\n"
            "        os.close(1)\n"
            "        time.sleep(20)\n"
            "        os._exit(0)\n"
            "    print('in the middle', flush=True)\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (-9, "in the middle\n")
        assert store.publish(book(1, 1)).revision == 1

    def test_two_that_make_the_file_at_the_same_time_make_one(self, path: Path):
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


class TestFollowing:
    """What a reader makes of whatever happens to the file."""

    def test_a_reader_never_keeps_the_log_from_being_put_into_the_file(self, store: Store, feed: Feed, live: LiveIndex):
        for spot in range(2, 40):
            store.publish(*(book(number, spot) for number in range(100)))
        eventually(lambda: spots(live)[99] == "39")
        log = Path(f"{feed.source}-wal")
        assert log.stat().st_size > 100_000
        store.close()
        # Empty, or gone: SQLite removes it where the reader is just opening the file anew.
        assert sqlite_file.log_header_of(Path(feed.source)) == b""
        assert feed.age < 5

    def test_loading_tells_how_it_gets_on(self, store: Store, path: Path):
        store.publish(*map(book, range(600)))
        told: list[tuple[int, int]] = []
        open_feed(path).read(lambda done, total: told.append((done, total)))
        (total,) = {total for _, total in told}
        assert total == plain(path, "SELECT sum(length(body)) FROM books")[0][0]
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert len(told) == 3

    def test_a_file_that_vanishes_leaves_the_last_good_index(
        self, feed: Feed, store: Store, path: Path, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        kept = path.rename(path.with_name("kept.db"))
        eventually(lambda: "market.db is not there; its 3 pairs stay as they were" in logged.text)
        age = feed.age
        eventually(lambda: feed.age > age + 0.1)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        kept.rename(path)
        eventually(lambda: "market.db is followed again" in logged.text)
        assert feed.age < 5
        store.publish(book(4, 4))
        eventually(lambda: 4 in spots(live))
        assert feed.books == 4, "the file was the same, so that nothing was read twice"

    def test_another_store_in_its_place_is_read_anew(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, logged: pytest.LogCaptureFixture
    ):
        live.publish(book(77))
        with open_store(tmp_path / "other.db") as other:
            other.publish(book(2, 5))
            other.publish(book(7, 7))
        store.close()
        (tmp_path / "other.db").rename(path)
        eventually(lambda: spots(live) == {2: "5", 7: "7", 77: None})
        eventually(lambda: "was replaced or rolled back, from revision 1 to 2, and read anew" in logged.text)
        with open_store(path) as other:
            other.publish(book(8, 8))
            eventually(lambda: 8 in spots(live))

    def test_another_store_of_the_same_revision_is_another_store(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed
    ):
        with open_store(tmp_path / "other.db") as other:
            other.publish(book(2, 5))
        store.close()
        (tmp_path / "other.db").rename(path)
        eventually(lambda: spots(live) == {2: "5"})
        assert feed.revision == 1

    def test_a_store_deleted_and_made_again_is_read_once_it_is_published_into(
        self, store: Store, path: Path, live: LiveIndex, feed: Feed, logged: pytest.LogCaptureFixture
    ):
        store.close()
        for name in ("market.db", "market.db-wal", "market.db-shm"):
            path.with_name(name).unlink(missing_ok=True)
        with open_store(path) as store:
            eventually(lambda: "was never published into; the 3 pairs of before stay until it is" in logged.text)
            assert spots(live) == {1: "1", 2: "2", 3: "3"}
            store.publish(book(2, 9))
            eventually(lambda: spots(live) == {2: "9"})

    def test_an_older_copy_that_is_put_back_is_read_anew_even_where_it_has_as_many_revisions(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed
    ):
        """Through SQLite, as `.restore` does it: the file is the same one, and nobody has to let go of it."""
        with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(tmp_path / "copy")) as copy:
            now.backup(copy)
            store.publish(book(1, 5))
            store.publish(book(9, 5))
            eventually(lambda: spots(live) == {1: "5", 2: "2", 3: "3", 9: "5"})
            copy.backup(now)
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3"})
        eventually(lambda: feed.revision == 1)
        with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(tmp_path / "copy")) as copy:
            store.publish(book(1, 5))
            eventually(lambda: feed.revision == 2)
            with closing(sqlite3.connect(path, isolation_level=None)) as blind:
                # Before the reader looks again there is another second revision.
                feed_sees = blind.execute("PRAGMA data_version").fetchone()
                assert feed_sees
            copy.backup(now)
            store.publish(book(2, 6))
        eventually(lambda: spots(live) == {1: "1", 2: "6", 3: "3"})

    @pytest.mark.parametrize("publishing", [False, True])
    def test_an_older_copy_that_is_copied_over_it_is_read_anew(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, publishing: bool
    ):
        """SQLite does not look at the file again while nobody tells it through what its users share."""
        store.close()
        if publishing:
            store = open_store(path)
        shutil.copyfile(path, tmp_path / "copy")
        with open_store(path) as other:
            other.publish(book(1, 5), book(9, 5))
        eventually(lambda: spots(live) == {1: "5", 2: "2", 3: "3", 9: "5"})
        with closing(sqlite3.connect(path)) as other_still:
            other_still.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copyfile(tmp_path / "copy", path)
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3"})
        if publishing:
            store.close()

    def test_what_is_written_over_it_leaves_the_last_good_index(
        self, store: Store, path: Path, live: LiveIndex, feed: Feed, logged: pytest.LogCaptureFixture
    ):
        store.close()
        path.write_bytes(b"garbage")
        eventually(lambda: "cannot be read (it is not a store: not a SQLite file); its 3 pairs stay" in logged.text)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}

    @pytest.mark.parametrize("content", [b"", b"garbage" * 1000, "foreign"])
    def test_what_is_no_store_in_its_place_leaves_the_last_good_index(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, content: bytes | str,
        logged: pytest.LogCaptureFixture,
    ):  # fmt: skip
        other = tmp_path / "other"
        if isinstance(content, bytes):
            other.write_bytes(content)
        else:
            plain(other, "CREATE TABLE t (x)")
        kept = tmp_path / "kept"
        store.close()
        path.rename(kept)
        other.rename(path)
        eventually(lambda: re.search(r"cannot be read \(it is .*\); its 3 pairs stay as they were", logged.text))
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        kept.rename(path)
        with open_store(path) as store:
            store.publish(book(1, 9))
            eventually(lambda: spots(live)[1] == "9")

    def test_the_log_of_the_former_file_is_not_taken_for_that_of_the_one_in_its_place(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, logged: pytest.LogCaptureFixture
    ):
        """SQLite finds the log by its name, and would show the former store, or a mixture of both."""
        with open_store(tmp_path / "other.db") as other:
            other.publish(book(2, 5))
        (tmp_path / "other.db").rename(path)
        eventually(
            lambda: (
                "log is still there: end whoever publishes, then remove market.db-wal and market.db-shm" in logged.text
            )
        )
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        for name in ("market.db-wal", "market.db-shm"):
            path.with_name(name).unlink()
        eventually(lambda: spots(live) == {2: "5"})

    def test_a_copy_put_back_beside_the_log_of_a_crashed_publisher_is_no_mixture_of_both(
        self, path: Path, tmp_path: Path
    ):
        """SQLite would put the log into it. Who is the first to open it has seen neither before."""
        with open_store(path) as store:
            store.publish(*(book(number, 1) for number in range(300)))
        shutil.copyfile(path, tmp_path / "copy")
        script = (
            "import os, signal, sys\n"
            "from market_index_feeds import open_store\n"
            "from tests.market_index_feeds.made_up import book\n"
            "with open_store(sys.argv[1]) as store:\n"
            "    store.publish(*(book(number, 2) for number in range(300)))\n"
            "store = open_store(sys.argv[1])\n"
            "store.publish(*(book(number, 3) for number in range(40)))\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        subprocess.run([sys.executable, "-c", script, path], check=False)
        assert Path(f"{path}-wal").stat().st_size > 0
        (tmp_path / "copy").rename(path)
        before = path.read_bytes()
        for opening in (lambda: open_feed(path).read(), lambda: open_store(path), lambda: open_feed(path).read()):
            with pytest.raises((FeedError, StoreError), match="rows are missing in it, or are those of another file"):
                opening()
        assert path.read_bytes() == before
        Path(f"{path}-wal").unlink()
        Path(f"{path}-shm").unlink(missing_ok=True)
        assert set(spots(open_feed(path).read()).values()) == {"1"}

    def test_rows_that_are_missing_are_noticed_and_replacing_makes_it_whole(self, store: Store, path: Path):
        store.publish(book(1, 1), book(2, 2))
        plain(path, "DELETE FROM books WHERE pair = ?", str(pair(1)))
        with pytest.raises(FeedError, match="rows are missing in it"):
            open_feed(path).read()
        assert store.replace([book(2, 2)]).revision == 2
        assert spots(open_feed(path).read()) == {2: "2"}

    def test_a_relative_path_is_followed_wherever_the_process_goes(
        self, store: Store, path: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.chdir(path.parent)
        with open_store("market.db") as here, open_feed("market.db") as feed:
            feed.start(live)
            monkeypatch.chdir("/")
            here.publish(book(1, 1))
            eventually(lambda: spots(live) == {1: "1"})

    def test_a_file_is_read_once_nobody_has_the_one_before_it_open(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, logged: pytest.LogCaptureFixture
    ):
        with open_store(tmp_path / "other.db") as other:
            other.publish(*(book(number, 5) for number in range(2000)))
        script = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); print(*c.execute('SELECT count(*) FROM books'));"
            "c.execute('PRAGMA wal_checkpoint(TRUNCATE)'); print(flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holding:
            assert holding.stdin
            assert holding.stdout
            assert (holding.stdout.readline(), holding.stdout.readline()) == ("(3,)\n", "\n")
            (tmp_path / "other.db").rename(path)
            eventually(lambda: "cannot be read (database disk image is malformed); its 3 pairs stay" in logged.text)
            assert spots(live) == {1: "1", 2: "2", 3: "3"}
            store.close()
            holding.stdin.close()
        eventually(lambda: len(spots(live)) == 2000)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ("body = 'nonsense'", "its digest does not fit, so that it was damaged or is not a store's: b'nonsense'"),
            ("body = x'ff00'", "its digest does not fit"),
            ("body = 7", "its digest does not fit"),
            ("body = replace(body, '\"1\"', '\"2\"')", "its digest does not fit"),
            ("digest = 7", "its digest does not fit"),
            ("digest = 'text'", "its digest does not fit"),
            ("revision = 'late'", "its digest does not fit"),
            ("body = (SELECT body FROM books WHERE pair = 'PAIR3')", "its digest does not fit"),
            ("(body, digest) = (SELECT body, digest FROM books WHERE pair = 'PAIR3')", "its digest does not fit"),
            ("pair = 'ADA/ADA'", "its digest does not fit"),
            ("pair = 'ADA/ADA', digest = forged(2, body)", "it holds the book of another pair"),
            ("pair = x'ff', digest = forged(2, body)", "it holds the book of another pair"),
            ("body = 'nonsense', digest = forged(2, 'nonsense')", "not JSON at character 0"),
        ],
    )
    @pytest.mark.parametrize("first", [False, True])
    def test_a_row_that_holds_no_book_costs_nothing_else(
        self, store: Store, path: Path, change: str, reason: str, first: bool, logged: pytest.LogCaptureFixture
    ):
        store.publish(book(1, 1), book(2, 2), book(3, 3))
        live = LiveIndex()
        with open_feed(path) as feed:
            if not first:
                feed.start(live)
            change = change.replace("PAIR3", str(pair(3)))
            plain(path, f"UPDATE books SET revision = 2, {change} WHERE pair = ?", str(pair(1)))
            plain(path, "UPDATE runs SET last = 2")
            if first and "digest" in change:
                # Then nothing tells whether the rows are all there.
                with pytest.raises(FeedError, match="rows are missing in it, or are those of another file"):
                    feed.start(live)
                return
            if first:
                feed.start(live)
                assert spots(live) == {2: "2", 3: "3"}
            else:
                eventually(lambda: reason in logged.text)
                assert spots(live) == {1: "1", 2: "2", 3: "3"}
            assert reason in logged.text
            plain(path, "UPDATE books SET body = 'and again', revision = 3 WHERE revision = 2")
            plain(path, "UPDATE runs SET last = 3")
            eventually(lambda: feed.revision == 3)
            store.publish(book(2, 9))
            eventually(lambda: spots(live)[2] == "9")
            assert logged.text.count("refused") == feed.refused == 1
            store.publish(book(1, 7))
            eventually(lambda: spots(live).get(1) == "7")

    def test_a_row_without_a_name_can_be_taken_out_by_replacing(self, store: Store, path: Path):
        store.publish(book(1, 1))
        plain(path, "UPDATE books SET pair = 'nobody'")
        plain(path, "INSERT INTO books VALUES (x'ff', 1, x'00', 'nonsense')")
        assert store.replace([book(2, 2)]) == Receipt(2, published=1, retracted=2)
        assert store.replace([book(2, 2)]) == Receipt(2)
        with open_feed(path) as feed:
            assert spots(feed.read()) == {2: "2"}
            assert feed.refused == 0

    def test_a_book_that_is_not_there_or_not_readable_is_told_of(self, store: Store, path: Path):
        store.publish(book(1), book(2))
        store.retract(pair(2))
        plain(path, "UPDATE books SET body = '{}' WHERE pair = ?", str(pair(1)))
        for number in (2, 3):
            with pytest.raises(PairNotFound, match=str(pair(number))):
                open_feed(path).read_order_book(pair(number))
        with pytest.raises(FeedError, match=f"row {pair(1)} cannot be read: its digest does not fit"):
            open_feed(path).read_order_book(pair(1))

    def test_to_look_at_the_file_lets_go_of_no_lock(self, store: Store, path: Path):
        """Whoever closes a file lets go of all POSIX locks of its process on it, and others would believe it unused."""
        store.publish(book(1, 1))
        odd = path.with_name("odd name")
        odd.symlink_to(path)
        for name in (path, odd):
            with open_feed(name) as feed:
                feed.read()
        elsewhere(
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM books'); c.close()", path
        )
        assert Path(f"{path}-wal").exists(), "another process took itself for the last one that has the file open"
        store.publish(book(1, 2))
        script = (
            "import sys; from market_index_feeds import open_feed; print(*open_feed(sys.argv[1]).read().pair_list())"
        )
        assert "last_spot=Decimal('2')" in elsewhere(script, path)


@frozen
class Case:
    content: bytes | str | None
    reading: str
    writing: str


CASES = {
    "empty": Case(b"", "(remove it to have one made)", "it is an empty file, not a store"),
    "garbage": Case(b"\x00garbage" * 999, "not a SQLite file", "not a SQLite file"),
    "cut short": Case(b"SQLite format 3\0", "a SQLite file of something else", "a SQLite file of something else"),
    "foreign": Case("CREATE TABLE t (x)", "a SQLite file of something else", "a SQLite file of something else"),
    "foreign log": Case("PRAGMA journal_mode = WAL", "of something else", "of something else"),
    "later": Case(
        "later",
        "it has schema 2, and this version of market-index reads schema 1: a later version wrote it",
        "it has schema 2",
    ),
    "folder": Case("folder", "it is not a file", "it is not a file"),
    "missing": Case(None, "No such file or directory", ""),
}


class TestOpening:
    """What is no store is left as it is, and one line says what is wrong with it."""

    @pytest.mark.parametrize("name", CASES)
    def test_each_is_one_clear_error_and_nothing_is_written(self, tmp_path: Path, name: str):
        case = CASES[name]
        path = tmp_path / "market.db"
        if case.content == "later":
            open_store(path).close()
            plain(path, "PRAGMA user_version = 2")
            path.with_name("market.db-lock").unlink()
        elif case.content == "folder":
            path.mkdir()
        elif isinstance(case.content, str):
            plain(path, case.content)
            plain(path, "CREATE TABLE another (x)")
        elif case.content is not None:
            path.write_bytes(case.content)
        before = {one.name: one.is_file() and one.read_bytes() for one in tmp_path.iterdir()}
        with pytest.raises(FeedError) as refused:
            open_feed(path)
        assert str(refused.value).startswith(f"{path} cannot be opened: ")
        assert case.reading in str(refused.value)
        if case.writing:
            with pytest.raises(StoreError) as refused_too:
                open_store(path)
            assert str(refused_too.value).startswith(f"{path} cannot be opened: ")
            assert case.writing in str(refused_too.value)
        assert {one.name: one.is_file() and one.read_bytes() for one in tmp_path.iterdir()} == before

    @pytest.mark.parametrize(
        ("target", "reason"),
        [
            ("nowhere/market.db", "No such file or directory|unable to open database file"),
            ("/sys/market.db", "Permission denied|unable to open database file"),
            ("nul\0.db", "embedded null"),
            ("amqp://me:secret@127.0.0.1/b", "^amqp://127.0.0.1/b cannot be opened: 'amqp' is not a kind of store"),
        ],
    )
    def test_what_cannot_be_made_is_one_clear_error(self, target: str, reason: str):
        with pytest.raises(StoreError, match=reason):
            open_store(target)

    @pytest.mark.parametrize("at_the_same_time", [False, True])
    def test_it_is_made_where_the_file_system_has_no_links(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, at_the_same_time: bool
    ):
        def refuse(new: Path, path: Path) -> None:
            if at_the_same_time:
                shutil.copyfile(new, path)
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        open_store(path).close()
        open_store(path).close()
        assert {one.name for one in path.parent.iterdir()} == {"market.db", "market.db-lock"}

    def test_standard_input_is_no_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(StoreError, match="- is standard input, and no store"):
            open_store("-")
        assert list(tmp_path.iterdir()) == []

    def test_a_later_schema_that_stands_in_the_log_alone_is_seen_too(self, store: Store, path: Path):
        store.publish(book(1))
        plain(path, "PRAGMA user_version = 2")
        for opening in (lambda: open_feed(path).read(), lambda: open_store(path)):
            with pytest.raises((FeedError, StoreError), match="it has schema 2"):
                opening()

    def test_a_store_is_known_by_what_it_holds_where_its_name_does_not_tell(self, store: Store, path: Path):
        store.publish(book(1, 1))
        store.close()
        other = path.rename(path.with_name("books"))
        assert spots(open_feed(other).read()) == {1: "1"}
        lines = path.with_name("lines")
        lines.write_bytes(wire.order_book_to_json(book(2, 2)) + b"\n")
        assert spots(open_feed(lines).read()) == {2: "2"}

    def test_it_can_be_opened_where_the_system_does_not_tell_what_is_open(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        real = Path.iterdir
        refusing = lambda self: real(self if str(self) != "/dev/fd" else Path("/nowhere"))  # noqa: E731
        monkeypatch.setattr(Path, "iterdir", refusing)
        with open_store(path) as store:
            store.publish(book(1, 1))
        assert spots(open_feed(path).read()) == {1: "1"}

    def test_a_file_that_goes_between_opening_and_starting_is_told_of(self, path: Path, live: LiveIndex):
        open_store(path).close()
        feed = open_feed(path)
        path.unlink()
        with pytest.raises(FeedError, match=r"market\.db cannot be opened: No such file or directory"):
            feed.start(live)

    def test_many_runs_of_writers_are_not_kept_for_ever(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(sqlite_file, "_MOST_RUNS", 3)
        for spot in range(1, 8):
            with open_store(path) as store:
                store.publish(book(1, spot))
                store.publish(book(1, spot))
        assert plain(path, "SELECT first, last FROM runs") == [(9, 10), (11, 12), (13, 14)]


class FollowedFile(Followed):
    """Whatever publishers do, and whatever happens to the file, the reader comes to show what the file holds."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "market.db"
        self.copies: list[tuple[Path, dict[int, str]]] = []
        self.begin_with(str(self.path))

    @property
    def is_shown(self) -> bool:
        # A store that was never published into leaves up what was up.
        return self.revision > 0

    def opened(self) -> Store:
        return open_store(self.path, synchronous="normal")

    @rule()
    def copy(self) -> None:
        to = self.folder / f"copy{len(self.copies)}"
        with closing(sqlite3.connect(self.path)) as now, closing(sqlite3.connect(to)) as copy:
            now.backup(copy)
        self.copies.append((to, dict(self.model)))

    @rule(which=st.integers(0, 9), in_place=st.booleans())
    def put_back(self, which: int, in_place: bool) -> None:
        if not self.copies:
            return
        copy, model = self.copies[which % len(self.copies)]
        if in_place:
            with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(self.path)) as now:
                source.backup(now)
        else:
            for store in self.stores:
                store.close()
            new = self.folder / "new"
            shutil.copyfile(copy, new)
            new.rename(self.path)
            eventually(lambda: self.feed.age < 0.05)
            self.stores = [self.opened() for _ in range(2)]
        self.model = dict(model)
        self.revision = self.stores[0].revision

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


FollowedFile.TestCase.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
TestFollowed = FollowedFile.TestCase
