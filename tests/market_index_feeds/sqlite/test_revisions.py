"""Revisions: each has the freshness that it was published with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from market_index import Freshness, LiveIndex, MarketIndex
from market_index_feeds import Feed, Receipt, Store, open_feed, open_store
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.sqlite.files import plain
from tests.waiting import eventually, in_thread

TIME = datetime(2026, 11, 22, tzinfo=UTC)


def published(path: Path) -> Freshness:
    return open_feed(path).read().freshness


class TestFreshness:
    def test_a_heartbeat_is_a_revision_without_rows(self, store: Store, path: Path, feed: Feed, live: LiveIndex):
        rows, kept = plain(path, "SELECT * FROM books"), live.current.order_book(pair(1))
        receipt = store.update((), freshness=Freshness(None, TIME))
        assert receipt == Receipt(2)
        assert plain(path, "SELECT * FROM books") == rows
        eventually(lambda: (live.current.published_at, feed.revision) == (TIME, 2))
        assert live.current.order_book(pair(1)) is kept
        assert feed.books == 3

    def test_a_heartbeat_with_the_same_values_is_a_revision(self, store: Store, feed: Feed):
        for revision in (2, 3, 4):
            quiet = feed.quiet_age
            assert store.update((), freshness=Freshness("slot 1", TIME)).revision == revision
            eventually(lambda revision=revision: feed.revision == revision)  # type: ignore[misc]  # a default has no type
            assert feed.quiet_age < quiet + 1

    def test_an_as_of_stays_until_another_is_given(self, store: Store, path: Path):
        store.update([book(1, 1)], as_of="slot 1")
        store.publish(book(1, 2))
        with open_store(path) as other:
            other.retract(pair(1))
            assert published(path).as_of == "slot 1"
            other.update((), freshness=Freshness())
            assert published(path) == Freshness()
            other.replace([], as_of="slot 2")
            other.replace([])
        found = published(path)
        assert (found.as_of, found.published_at is None) == (None, False)

    def test_the_time_is_that_of_this_machine_unless_it_is_given(self, store: Store, path: Path):
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        store.publish(book(1, 1))
        found = published(path).published_at
        assert found is not None
        assert before <= found <= datetime.now(UTC)


def freshness_of(number: int) -> Freshness:
    """Return the freshness of the publication of books with this spot."""
    return Freshness(f"slot {number}", TIME + timedelta(seconds=number))


@contextmanager
def read_meanwhile(path: Path) -> Iterator[list[MarketIndex]]:
    """Read the file repeatedly in another thread. The list has the results."""
    stop, read = Event(), list[MarketIndex]()

    def reading() -> None:
        while not stop.is_set():
            read.append(open_feed(path).read())

    thread = in_thread(reading)
    try:
        yield read
    finally:
        stop.set()
        thread.join()


class TestExact:
    """A reader always sees exactly the books of their as_of, neither earlier nor later ones."""

    @pytest.mark.parametrize("publishes", [200, pytest.param(10_000, marks=pytest.mark.thorough)])
    def test_each_index_has_the_freshness_of_its_books(self, path: Path, live: LiveIndex, publishes: int):
        followed = list[MarketIndex]()
        with open_store(path, synchronous="normal") as store, open_feed(path) as feed:
            store.update([book(1, 1), book(2, 1)], freshness=freshness_of(1))
            feed.start(live)
            with read_meanwhile(path) as read:
                for number in range(2, publishes + 1):
                    store.update([book(1, number), book(2, number)], freshness=freshness_of(number))
                    followed.append(live.current)
                eventually(lambda: live.current.freshness == freshness_of(publishes))
        for indexes in (followed, read):
            assert len({index.as_of for index in indexes}) > 2
            for index in indexes:
                first, second = spots(index).values()
                assert first == second
                assert index.freshness == freshness_of(int(first or 0))
