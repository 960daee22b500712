"""Reading a feed once: all of it, or one book."""

from __future__ import annotations

from typing import Any

import pytest

from market_index import Freshness, MarketIndex, OrderBook, Pair
from market_index_feeds import Feed
from market_index_feeds.medium import Update
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.scripted import Scripted


class Growing(Scripted):
    """A source into which something is published before each read."""

    slot = 0

    def read_freshness(self) -> Freshness:
        self.slot += 1
        return Freshness(f"slot {self.slot}")

    def read_order_book(self, pair: Pair) -> OrderBook:
        del pair
        self.slot += 1
        return book(1, self.slot)


def test_only_a_live_index_is_filled():
    feed = Feed(Scripted(Update(replaces_all=True, books=[book(1)])))
    not_live: Any = MarketIndex()
    with pytest.raises(TypeError, match="live must be a LiveIndex, got MarketIndex: <MarketIndex: 0 pairs>"):
        feed.start(not_live)
    assert spots(feed.read()) == {1: None}


class TestReading:
    """Reading once."""

    def test_a_source_that_has_more_is_read_to_its_end(self):
        source = Scripted(Update(replaces_all=True, books=[book(1)], has_more=True), Update(books=[book(2)]))
        reported: list[tuple[int, int]] = []
        feed = Feed(source)
        assert spots(feed.read(lambda *progress: reported.append(progress))) == {1: None, 2: None}
        assert reported == [(0, 0)]
        assert source.closed == 1
        again = Scripted(Update(replaces_all=True, books=[book(1)], has_more=True), Update(books=[book(2)]))
        assert spots(Feed(again).read()) == {1: None, 2: None}

    def test_one_book_is_read_with_all_others_if_the_medium_has_no_better_way(self):
        assert Feed(Scripted(Update(replaces_all=True, books=[book(1, 5), book(2)]))).read_order_book(pair(1)) == book(
            1, 5
        )

    def test_the_freshness_of_one_book_is_read_before_the_book(self):
        source = Growing()
        feed = Feed(source)
        assert (feed.read_order_book(pair(1)), feed.freshness) == (book(1, 2), Freshness("slot 1"))

    def test_the_freshness_of_one_book_is_that_of_all_if_all_are_read(self):
        feed = Feed(Scripted(Update(replaces_all=True, books=[book(1)], freshness=Freshness("slot 1"))))
        feed.read_order_book(pair(1))
        assert feed.freshness == Freshness("slot 1")
