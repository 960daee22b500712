"""Publishing into a file: what was acknowledged is stored, and publishers take turns."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from threading import Barrier, Thread

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, Receipt, Store, StoreBusy, StoreError, open_feed, open_store
from market_index_feeds.sqlite.lock import WriterLock
from market_index_feeds.sqlite.revisions import Change
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.sqlite.files import elsewhere, plain
from tests.waiting import eventually


class TestPublishing:
    """The effects of one change."""

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
    """Making some books the whole content of a store."""

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

    def test_a_signal_handler_that_interrupts_a_change_gets_an_error(
        self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        finish = Change.finish

        def interrupted(change: Change) -> None:
            with pytest.raises(StoreError, match="this thread is in the middle of another change"):
                store.publish(book(2, 2))
            finish(change)

        monkeypatch.setattr(Change, "finish", interrupted)
        assert store.publish(book(1, 1)) == Receipt(1, published=1)
        assert spots(open_feed(path).read()) == {1: "1"}

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


@pytest.mark.parametrize("name", ["books.ndjson", "pairs.json", "Books.CSV"])
def test_a_store_cannot_have_the_name_of_a_text_file(tmp_path: Path, name: str):
    path = tmp_path / name
    message = (
        f"a store must be a SQLite file such as {path.stem}.db, got the name of a text file .*publish market.db {path}"
    )
    for make in (True, False):
        with pytest.raises(StoreError, match=message):
            open_store(path, make=make)
    assert not path.exists()
    path.write_text("{}\n")
    with pytest.raises(StoreError, match=message):
        open_store(path)
