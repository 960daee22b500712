"""Changes of order books: derived books are compared with new books, and with dicts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, OrderBook, Pair, PriceLevel, Side
from market_index.strategies import level_changes, order_books, prices
from tests.market_index.models import books, exact, expected_levels

SNEK = AssetId(bytes.fromhex("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"), b"SNEK")
PAIR = Pair(SNEK, ADA)


class TestApply:
    """`OrderBook.apply`: the next book after changes of levels."""

    @pytest.mark.decision(14)
    @given(st.data())
    def test_it_equals_a_new_book_of_all_levels(self, data):
        book = data.draw(books)
        bids, asks = data.draw(level_changes(book)), data.draw(level_changes(book))
        spot = data.draw(st.one_of(st.just(...), st.none(), prices()))
        expected = []
        for side, levels, changes in ((Side.BID, book.bids, bids), (Side.ASK, book.asks, asks)):
            totals = dict(exact(levels))
            for price, amount in changes:
                totals[Fraction(price)] = amount
            expected.append(expected_levels(totals, side))
        changed = book.apply(bids, asks, spot)
        assert [exact(changed.bids), exact(changed.asks)] == expected
        assert changed.spot == (book.spot if spot is ... else spot)
        assert changed.pair is book.pair

    @given(st.data())
    def test_the_changes_since_an_earlier_book_turn_it_into_the_later_one(self, data):
        earlier = data.draw(books)
        # A book of the same pair: changed levels, or others.
        later = data.draw(order_books(pair=st.just(earlier.pair), max_levels=4) | st.just(earlier))
        later = later.apply(data.draw(level_changes(later)), data.draw(level_changes(later)))
        bids, asks = later.changes_since(earlier)
        assert earlier.apply(bids, asks, later.spot) == later
        for changes, now, before in ((bids, later.bids, earlier.bids), (asks, later.asks, earlier.asks)):
            # They are the fewest: each price once, with another amount than before.
            assert len({price for price, _ in changes}) == len(changes)
            for price, amount in changes:
                assert amount == now.amount_at(price) != before.amount_at(price)

    def test_books_of_two_pairs_and_the_sides_of_a_book_have_no_changes(self):
        with pytest.raises(ValueError, match=f"^the earlier book must be of the pair {PAIR}, got ADA/"):
            OrderBook(PAIR).changes_since(OrderBook(Pair(ADA, SNEK)))
        with pytest.raises(ValueError, match=r"^the earlier levels must be bids, got asks$"):
            OrderBook(PAIR).bids.changes_since(OrderBook(PAIR).asks)

    def test_unchanged_sides_are_shared(self):
        book = OrderBook.from_levels(PAIR, [("3", 1), ("2", 1)], [("4", 1), ("5", 1)], "3")
        following = book.apply(bids=[("3", 7)])
        assert following.asks is book.asks
        assert following.apply(asks=[("4", 7)]).bids is following.bids
        assert following.bids[1] == book.bids[1]
        assert following.bids[0] == PriceLevel("3", 7)
        assert book.bids[0] == PriceLevel("3", 1)
        assert book.apply(bids=[("3", 1), ("9", 0)], asks=[]).bids is book.bids
