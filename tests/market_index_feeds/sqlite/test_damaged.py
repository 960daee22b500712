"""Rows that were damaged or deleted: they are not served, publishers and readers agree, and a change repairs them."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from market_index import Freshness, LiveIndex
from market_index_feeds import Feed, FeedError, Store, StoreError, open_feed, open_store
from market_index_feeds.sqlite import open_sqlite_source
from market_index_http import create_app
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.relays import await_spots, relaying
from tests.market_index_feeds.sqlite.files import damage, plain
from tests.service import served
from tests.waiting import eventually

COLUMNS = "first", "last", "token", "total", "as_of", "published_at", "complete", "digest"
VALUES = None, -1, 1 << 62, 0.5, "", "late", b"", b"\xff\0"
DAMAGED = "the row of the last revision rejected: must have the stored digest"
BOTH: dict[int, str | None] = {1: "1", 2: "2"}


@pytest.fixture
def complete(path: Path) -> Path:
    """A file with two runs, whose last one begins before its last revision."""
    for spot in (9, 1):
        with open_store(path, synchronous="normal") as store:
            store.replace([book(1, spot), book(2, 2)])
            store.update((), as_of="slot 7")
    return path


def damages(path: Path) -> Iterator[tuple[str, object]]:
    """Yield columns of the row of the last run, with other values: each byte changed, and values of other types."""
    (row,) = plain(path, "SELECT * FROM runs ORDER BY first DESC LIMIT 1")
    for column, stored in zip(COLUMNS, row, strict=True):
        flipped: list[object] = []
        if isinstance(stored, int):
            flipped = [stored + 1]
        elif isinstance(stored, str):
            flipped = [stored[:at] + chr(ord(stored[at]) ^ 1) + stored[at + 1 :] for at in range(len(stored))]
        elif isinstance(stored, bytes):
            flipped = [stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :] for at in range(len(stored))]
        yield from ((column, value) for value in (*flipped, *VALUES) if value != stored)


def set_column(path: Path, column: str, value: object) -> bool:
    """Overwrite a column of the last run. Return whether SQLite accepts the value, and it is another one."""
    statement = f"UPDATE runs SET {column} = ? WHERE first = (SELECT max(first) FROM runs)"
    before = plain(path, "SELECT * FROM runs")
    try:
        plain(path, statement, value)
    except sqlite3.IntegrityError:
        return False
    return plain(path, "SELECT * FROM runs") != before


class TestLastRun:
    def test_of_a_damaged_row_nothing_is_used_and_its_books_are_read(self, complete: Path, tmp_path: Path):
        copy, kinds = tmp_path / "copy.db", set()
        for column, value in damages(complete):
            shutil.copyfile(complete, copy)
            if not set_column(copy, column, value) or (column, value) == ("first", -1):
                continue
            feed = open_feed(copy)
            index = feed.read()
            assert (spots(index), index.freshness) == (BOTH, Freshness()), (column, value)
            assert (feed.rejected, feed.current_rejections) == (1, 1), (column, value)
            assert not feed.content.coverage.is_complete
            if column not in kinds:
                feed = open_feed(copy)
                assert (str(feed.read_order_book(pair(1)).spot), feed.freshness) == ("1", Freshness())
            kinds.add(column)
        assert kinds == set(COLUMNS)

    @pytest.mark.parametrize("column", COLUMNS)
    @pytest.mark.parametrize("replaces", [False, True])
    def test_the_next_change_repairs_it(self, complete: Path, tmp_path: Path, column: str, replaces: bool):
        copy = tmp_path / "copy.db"
        for changed, value in damages(complete):
            if changed != column or (column, value) == ("first", -1) or (isinstance(value, bytes) and len(value) > 2):
                continue
            shutil.copyfile(complete, copy)
            if not set_column(copy, column, value):
                continue
            with open_store(copy, synchronous="normal") as store:
                before = store.revision
                books = [book(1, 1), book(2, 2)]
                receipt = store.replace(books) if replaces else store.update(books[:1])
                assert receipt.revision == before + 1
            feed = open_feed(copy)
            index = feed.read()
            assert (spots(index), index.as_of, index.published_at is None) == (BOTH, None, False)
            assert (feed.rejected, feed.content.coverage.is_complete) == (0, replaces)

    def test_a_service_keeps_its_books_until_the_row_is_repaired(
        self, complete: Path, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        with open_feed(complete) as feed, served(create_app(live)) as service:
            feed.start(live)
            assert service.order_book(str(pair(1).base), "ADA").headers["market-index-as-of"] == "slot 7"
            for rejected, as_of in enumerate(("slot 8", " "), 1):
                set_column(complete, "as_of", as_of)
                # It is counted and logged before the change is visible.
                eventually(lambda rejected=rejected: (feed.rejected, live.current.as_of) == (rejected, None))  # type: ignore[misc]  # a default has no type
                answer = service.order_book(str(pair(1).base), "ADA")
                assert (answer.json["spot"], answer.headers.get("market-index-as-of")) == ("1", None)
                assert (spots(live), feed.problem) == (BOTH, None)
                set_column(complete, "published_at", as_of)
                with open_store(complete) as store:
                    store.update([book(2, 2)], as_of="slot 9")
                eventually(lambda: live.current.as_of == "slot 9")
                assert feed.current_rejections == 0
        assert logged.text.count(DAMAGED) == 2

    def test_a_relay_publishes_its_books_without_a_freshness(self, complete: Path, tmp_path: Path):
        set_column(complete, "as_of", "slot 8")
        target = str(tmp_path / "copy.db")
        with relaying(str(complete), target):
            await_spots(target, BOTH)
            assert open_feed(target).read().freshness == Freshness()
            with open_store(complete) as store:
                store.replace([book(1, 1)], as_of="slot 9")
            await_spots(target, {1: "1"})
            eventually(lambda: open_feed(target).read().as_of == "slot 9")

    def test_a_follower_of_lost_revisions_reads_the_whole_file(self, complete: Path):
        """Heartbeats are revisions without rows, so a damaged row hides how many there were."""
        with closing(open_sqlite_source(str(complete)).updates(Event(), None)) as updates:
            assert next(updates).revision == 4
            set_column(complete, "as_of", "slot 8")
            with open_store(complete) as store:
                assert store.publish(book(1, 8)).revision == 4
                store.publish(book(2, 9))
            update = next(one for one in updates if one.revision is not None)
        assert (update.replaces_all, {one.pair for one in update.books}) == (True, {pair(1), pair(2)})


@pytest.mark.parametrize("moment", ["before the first", "between two"])
class TestMissingRows:
    """A row that another program deleted."""

    @pytest.fixture
    def lacking(self, store: Store, path: Path, moment: str) -> Store:
        with open_store(path) as other:
            other.replace([book(1, 1), book(2, 2)], as_of="slot 1")
        if moment == "between two":
            store.update((), as_of="slot 2")
        plain(path, "DELETE FROM books WHERE pair = ?", str(pair(1)))
        return store

    def test_a_publisher_fails_as_new_readers_do_until_all_is_replaced(self, lacking: Store, path: Path):
        for _ in range(2):
            for work in (
                lambda: lacking.update((), as_of="slot 3"),
                lambda: lacking.publish(book(1, 3)),
                lambda: lacking.retract(pair(2)),
                lambda: open_feed(path).read(),
            ):
                with pytest.raises((StoreError, FeedError), match=r"rows are missing.*with --replace"):
                    work()
        lacking.replace([book(2, 2)], as_of="slot 4")
        lacking.publish(book(3, 3))
        index = open_feed(path).read()
        assert (spots(index), index.as_of) == ({2: "2", 3: "3"}, "slot 4")

    def test_a_follower_keeps_the_pair_until_all_is_replaced(self, lacking: Store, path: Path, live: LiveIndex):
        lacking.replace([book(1, 1), book(2, 2)])
        with open_feed(path) as feed:
            feed.start(live)
            plain(path, "DELETE FROM books WHERE pair = ?", str(pair(1)))
            with pytest.raises(StoreError, match="rows are missing"):
                lacking.publish(book(2, 3))
            assert spots(live) == BOTH
            lacking.replace([book(2, 3)])
            eventually(lambda: spots(live)[2] == "3")


def test_if_the_last_run_is_hidden_by_an_older_one_replace_repairs(complete: Path):
    """Its number was damaged, so that the row of the previous run is the last one."""
    with closing(open_sqlite_source(str(complete)).updates(Event(), None)) as updates, open_store(complete) as store:
        assert next(updates).revision == 4
        set_column(complete, "first", -1)
        for work in (lambda: store.publish(book(1, 3)), lambda: open_feed(complete).read()):
            with pytest.raises((StoreError, FeedError), match="rows are missing"):
                work()
        assert store.replace([book(1, 7), book(2, 2)], as_of="slot 7").revision == 3
        update = next(one for one in updates if one.revision is not None)
        assert (update.replaces_all, len(update.books)) == (True, 2)
        index = open_feed(complete).read()
        assert (spots(index), index.as_of) == ({1: "7", 2: "2"}, "slot 7")


@pytest.mark.parametrize("repair", ["publish", "retract", "replace"])
def test_a_damaged_tombstone_retracts_nothing(store: Store, path: Path, live: LiveIndex, feed: Feed, repair: str):
    store.replace([book(1, 1), book(2, 2), book(3, 3)], as_of="slot 2")
    damage(path, "UPDATE books SET body = NULL, revision = 3 WHERE pair = ?", str(pair(1)))
    eventually(lambda: feed.current_rejections == 1)
    eventually(lambda: feed.content.coverage.invalid == {pair(1)})
    eventually(lambda: (spots(live), live.current.as_of) == ({1: "1", 2: "2", 3: "3"}, None))
    if repair == "publish":
        store.publish(book(1, 4))
    elif repair == "retract":
        assert store.retract(pair(1)).retracted == 1
    else:
        assert store.replace([book(2, 2), book(3, 3)], as_of="slot 2").retracted == 1
    expected = {2: "2", 3: "3"} | ({1: "4"} if repair == "publish" else {})
    eventually(lambda: (spots(live), live.current.as_of) == (expected, "slot 2"))
    index = open_feed(path).read()
    assert (spots(index), index.as_of, feed.current_rejections) == (expected, "slot 2", 0)


def test_replace_repairs_rows_whose_revision_is_no_number(store: Store, path: Path):
    store.publish(book(1, 1), book(2, 2))
    store.retract(pair(2))
    damage(path, "UPDATE books SET revision = 'late'")
    assert open_feed(path).read().as_of is None
    receipt = store.replace([book(1, 1)], as_of="slot 1")
    assert (receipt.published, receipt.retracted) == (1, 1)
    feed = open_feed(path)
    assert (spots(feed.read()), feed.rejected, feed.freshness.as_of) == ({1: "1"}, 0, "slot 1")


def test_revisions_increase_although_the_rows_of_the_runs_are_deleted_or_out_of_range(complete: Path):
    with open_store(complete) as store:
        before = store.publish(book(1, 3)).revision
    for change in (
        "DELETE FROM runs",
        "UPDATE runs SET last = 0x7fffffffffffffff",
        "UPDATE books SET revision = 0x7fffffffffffffff WHERE rowid = 2",
    ):
        plain(complete, change)
        with open_store(complete) as store:
            after = store.replace([book(1, before), book(2, 2)]).revision
            assert before < after < before + 10
            before = store.publish(book(2, 2)).revision
    assert spots(open_feed(complete).read()).keys() == {1, 2}


def test_a_row_whose_name_is_no_text_is_not_that_of_a_pair(complete: Path):
    """Otherwise a change of the pair would add a second row."""
    plain(complete, "UPDATE books SET pair = CAST(pair AS BLOB) WHERE pair = ?", str(pair(1)))
    feed = open_feed(complete)
    assert (spots(feed.read()), feed.rejected) == ({2: "2"}, 1)
