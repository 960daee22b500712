"""Following a file that is replaced, restored, overwritten or removed."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, FeedError, Store, StoreError, open_feed, open_store
from market_index_feeds.sqlite.source import SqliteSource
from tests.market_index_feeds.made_up import book, spots
from tests.market_index_feeds.sqlite.files import plain
from tests.waiting import eventually


class TestReplaced:
    """Another file, or none, at the path."""

    def test_a_missing_file_keeps_the_last_valid_index(
        self, feed: Feed, store: Store, path: Path, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        kept = path.rename(path.with_name("kept.db"))
        eventually(lambda: "market.db: cannot be read: No such file or directory; keeping its 3 pairs" in logged.text)
        age = feed.age
        eventually(lambda: feed.age > age + 0.1)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        kept.rename(path)
        eventually(lambda: "market.db: recovered after" in logged.text)
        store.publish(book(4, 4))
        eventually(lambda: 4 in spots(live))
        assert feed.books == 4, "the file was the same, so that nothing was read twice"

    def test_another_store_at_the_path_is_read_as_a_whole(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, logged: pytest.LogCaptureFixture
    ):
        live.publish(book(77))
        with open_store(tmp_path / "other.db") as other:
            other.publish(book(2, 5))
            other.replace([book(2, 5), book(7, 7)])
        store.close()
        (tmp_path / "other.db").rename(path)
        eventually(lambda: spots(live) == {2: "5", 7: "7", 77: None})
        eventually(
            lambda: (
                "reloaded, because it was replaced or rolled back, from revision 1 to 2: 2 pairs dropped" in logged.text
            )
        )
        with open_store(path) as other:
            other.publish(book(8, 8))
            eventually(lambda: 8 in spots(live))

    def test_another_store_with_the_same_revision_is_recognized(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed
    ):
        with open_store(tmp_path / "other.db") as other:
            other.replace([book(2, 5)])
        store.close()
        (tmp_path / "other.db").rename(path)
        eventually(lambda: spots(live) == {2: "5"})
        assert feed.revision == 1

    def test_a_store_that_is_created_again_retracts_no_pair_until_it_is_replaced(
        self, store: Store, path: Path, live: LiveIndex, feed: Feed, logged: pytest.LogCaptureFixture
    ):
        store.close()
        for name in ("market.db", "market.db-wal", "market.db-shm"):
            path.with_name(name).unlink(missing_ok=True)
        with open_store(path) as store:
            eventually(lambda: "contains no order book; keeping its 3 pairs" in logged.text)
            assert spots(live) == {1: "1", 2: "2", 3: "3"}
            store.update([book(2, 9)], as_of="slot 9")
            eventually(lambda: spots(live) == {1: "1", 2: "9", 3: "3"})
            eventually(lambda: (feed.problem or "").startswith("lacks live pairs, and is not complete"))
            assert (feed.is_unknown, live.current.as_of) == (True, None)
            store.replace([book(2, 9)], as_of="slot 9")
            eventually(lambda: (spots(live), live.current.as_of, feed.problem) == ({2: "9"}, "slot 9", None))

    def test_a_restored_copy_is_read_again_even_if_it_has_as_many_revisions(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed
    ):
        """Through SQLite, as `.restore` does it: the file is the same one, and no process has to close it."""
        with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(tmp_path / "copy")) as copy:
            now.backup(copy)
            store.publish(book(1, 5))
            store.publish(book(9, 5))
            eventually(lambda: spots(live) == {1: "5", 2: "2", 3: "3", 9: "5"})
            copy.backup(now)
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 9: "5"})
        eventually(lambda: feed.revision == 1)
        with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(tmp_path / "copy")) as copy:
            store.publish(book(1, 5))
            eventually(lambda: feed.revision == 2)
            with closing(sqlite3.connect(path, isolation_level=None)) as blind:
                # Before the next check of the reader there is another second revision.
                feed_sees = blind.execute("PRAGMA data_version").fetchone()
                assert feed_sees
            copy.backup(now)
            store.publish(book(2, 6))
        eventually(lambda: spots(live) == {1: "1", 2: "6", 3: "3", 9: "5"})

    @pytest.mark.parametrize("complete", [False, True])
    def test_a_restored_copy_retracts_a_pair_that_it_lacks_only_if_it_is_complete(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, complete: bool
    ):
        if complete:
            store.replace([book(1, 1), book(2, 2), book(3, 3)])
        with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(tmp_path / "copy")) as copy:
            now.backup(copy)
            store.update([book(9, 5)], as_of="slot 5")
            eventually(lambda: live.current.as_of == "slot 5")
            copy.backup(now)
        lacked = {} if complete else {9: "5"}
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3"} | lacked)
        eventually(lambda: (feed.problem is None, feed.is_unknown) == (complete, not complete))
        store.update((), as_of="slot 6")
        eventually(lambda: live.current.as_of == ("slot 6" if complete else None) and feed.revision == store.revision)
        assert spots(live) == {1: "1", 2: "2", 3: "3"} | lacked
        store.replace([book(1, 1), book(2, 2), book(3, 3)], as_of="slot 7")
        eventually(lambda: (spots(live), live.current.as_of) == ({1: "1", 2: "2", 3: "3"}, "slot 7"))
        eventually(lambda: feed.problem is None)

    @pytest.mark.parametrize("publishing", [False, True])
    def test_an_older_copy_written_over_the_file_is_read_again(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, publishing: bool
    ):
        """SQLite does not read the file again unless the shared index says that it has changed."""
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
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 9: "5"})
        if publishing:
            store.close()

    def test_garbage_written_over_the_file_keeps_the_last_valid_index(
        self, store: Store, path: Path, live: LiveIndex, feed: Feed, logged: pytest.LogCaptureFixture
    ):
        store.close()
        path.write_bytes(b"garbage")
        eventually(
            lambda: (
                "cannot be read: it must be a store, got a file that is not of SQLite; keeping its 3 pairs"
                in logged.text
            )
        )
        assert spots(live) == {1: "1", 2: "2", 3: "3"}

    @pytest.mark.parametrize("content", [b"", b"garbage" * 1000, "foreign"])
    def test_another_kind_of_file_at_the_path_keeps_the_last_valid_index(
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
        eventually(lambda: re.search(r"cannot be read: it must be a store, got .*; keeping its 3 pairs", logged.text))
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        kept.rename(path)
        with open_store(path) as store:
            store.publish(book(1, 9))
            eventually(lambda: spots(live)[1] == "9")

    def test_the_log_of_the_previous_file_is_not_applied_to_the_new_one(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, logged: pytest.LogCaptureFixture
    ):
        """SQLite finds the log by its name, and would show a mixture of both."""
        store.publish(*(book(number, 1) for number in range(300)))
        store.close()
        with open_store(tmp_path / "other.db") as other:
            other.replace(book(number, 5) for number in range(300))
        with open_store(path) as store:
            store.publish(*(book(number, 2) for number in range(40)))
            eventually(lambda: spots(live)[39] == "2")
            before = spots(live)
            (tmp_path / "other.db").rename(path)
            eventually(lambda: re.search("cannot be read: (rows are missing|database disk image)", logged.text))
            assert spots(live) == before
            for name in ("market.db-wal", "market.db-shm"):
                path.with_name(name).unlink()
            eventually(lambda: set(spots(live).values()) == {"5"})

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_a_file_that_is_replaced_and_published_to_while_it_is_read_is_read_again(
        self, store: Store, path: Path, tmp_path: Path, live: LiveIndex, feed: Feed, moment: str,
        monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture,
    ):  # fmt: skip
        """The connection to the previous file finds the log of the new one by its name."""
        with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(tmp_path / "copy")) as copy:
            now.backup(copy)
        real = SqliteSource._read
        others: list[Store] = []

        def replace() -> None:
            if not others:
                store.close()
                (tmp_path / "copy").rename(path)
                others.append(open_store(path))
                others[0].publish(book(2, 5))

        def read(source: SqliteSource, *arguments: Any) -> Any:
            if moment == "before":
                replace()
                return real(source, *arguments)
            found = real(source, *arguments)
            replace()
            return found

        monkeypatch.setattr(SqliteSource, "_read", read)
        store.publish(book(9, 9))
        eventually(lambda: spots(live) == {1: "1", 2: "5", 3: "3"})
        eventually(lambda: feed.revision == others[0].revision == 2)
        others[0].close()
        assert "cannot be read" not in logged.text

    def test_a_restored_copy_is_not_mixed_with_the_log_of_a_crashed_publisher(self, path: Path, tmp_path: Path):
        """SQLite would copy the log into it. The first process to open it knows neither of them."""
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
            with pytest.raises((FeedError, StoreError), match="rows are missing, or belong to another file"):
                opening()
        assert path.read_bytes() == before
        Path(f"{path}-wal").unlink()
        Path(f"{path}-shm").unlink(missing_ok=True)
        assert set(spots(open_feed(path).read()).values()) == {"1"}

    def test_a_file_is_read_when_all_have_closed_the_previous_one(
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
            eventually(lambda: "cannot be read: database disk image is malformed; keeping its 3 pairs" in logged.text)
            assert spots(live) == {1: "1", 2: "2", 3: "3"}
            store.close()
            holding.stdin.close()
        eventually(lambda: len(spots(live)) == 2000)
