"""One side of a book as a sequence, compared with a tuple, and the chunks that versions share."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import accumulate, product
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

from market_index import (
    ADA,
    AssetId,
    InvalidOrderBook,
    Levels,
    Order,
    OrderBook,
    Pair,
    PriceLevel,
    Side,
    wire,
)
from market_index.display import Tokens
from market_index.levels import by_price
from market_index.sorted_map import BOUNDARY_MASK
from market_index.strategies import prices
from tests.market_index.models import books

PAIR = Pair(AssetId(bytes(28), b"SNEK"), ADA)
# Prices at which a chunk of a large side ends.
ENDS = [price for price in range(1, 400) if not crc32(str(price).encode()) & BOUNDARY_MASK]


def deep_book(count: int) -> OrderBook:
    return OrderBook.from_levels(PAIR, bids=[(str(price), price) for price in range(1, count + 1)])


class Integer:
    """An integer of another library, such as numpy.int64: a whole number, but not an int."""

    def __index__(self) -> int:
        return 5

    __int__ = __index__


@pytest.mark.decision(1)
@pytest.mark.parametrize(
    "take",
    [
        lambda amount: PriceLevel("1", amount),
        lambda amount: OrderBook.from_levels(PAIR, bids=[("1", amount)]),
        lambda amount: OrderBook(PAIR).apply(asks=[("1", amount)]),
        lambda amount: Order(PAIR, Side.BID, "1", amount),
        lambda amount: Order.from_offer(PAIR, offered=ADA, amount=amount, price="1"),
        lambda amount: OrderBook(PAIR).sell(amount),
        lambda amount: OrderBook(PAIR).sell(amount, "quote"),
        lambda amount: Tokens().human_amount(ADA, amount),
    ],
)
def test_an_amount_is_an_int_everywhere(take: Callable[[Any], object]):
    take(5)
    for amount in (Integer(), True, 5.0):
        with pytest.raises((InvalidOrderBook, TypeError), match=f"int.* got {type(amount).__name__}"):
            take(amount)


class TestSequence:
    """It behaves like a tuple of the same levels."""

    @pytest.mark.parametrize("count", [0, 1, 4, 300])
    def test_it_is_indexed_and_sliced_as_a_tuple_is(self, count: int):
        bids = deep_book(count).bids
        levels = tuple(bids)
        assert [bids[position] for position in range(-count, count)] == [*levels] * 2
        ends = list(accumulate(len(chunk.keys) for chunk in by_price(bids).chunks))[:-1]
        near_ends = [end + offset for end in ends for offset in (-1, 0, 1)]
        bounds = near_ends if count > 4 else [None, *range(-count - 2, count + 3)]
        for start, stop, step in product(bounds, bounds, [None, 1, 2, 3]):
            assert bids[start:stop:step] == Levels(Side.BID, levels[start:stop:step])

    def test_a_slice_from_the_worst_price_is_rejected(self):
        with pytest.raises(ValueError, match=r"best price first: reversed\(levels\) starts at the worst price"):
            _ = deep_book(3).bids[::-1]

    @given(books)
    def test_it_has_columns_and_a_length(self, book: OrderBook):
        levels = tuple(book.asks)
        assert book.asks.prices == tuple(level.price for level in levels)
        assert book.asks.amounts == tuple(level.accumulated_liquidity for level in levels)
        assert len(book.asks) == len(levels)
        assert list(reversed(book.asks)) == list(reversed(levels))
        assert bool(book.asks) == bool(levels)
        for position, level in enumerate(levels):
            assert level in book.asks
            assert PriceLevel(level.price, max(level.accumulated_liquidity ^ 1, 2)) not in book.asks
            assert book.asks[position] == level

    def test_a_price_is_no_member_and_no_index(self):
        bids: Any = deep_book(3).bids
        for mistake in (lambda: bids.prices[0] in bids, lambda: bids["4100"], lambda: bids[bids.prices[0]]):
            with pytest.raises(TypeError, match="amount_at takes a price"):
                mistake()

    @pytest.mark.parametrize("position", [3, -4])
    def test_a_position_out_of_range_is_an_index_error_with_the_number_of_levels(self, position: int):
        with pytest.raises(IndexError, match=rf"^bids\[{position}\] is out of range: there are 3 levels$"):
            _ = deep_book(3).bids[position]

    @given(books, books)
    def test_equal_levels_of_one_side_are_equal(self, one: OrderBook, other: OrderBook):
        assert (one.bids == other.bids) == (tuple(one.bids) == tuple(other.bids))
        again = Levels(Side.BID, list(one.bids))
        assert again == one.bids
        assert hash(again) == hash(one.bids)
        assert one.bids != Levels(Side.ASK, tuple(reversed(one.bids)))
        assert one.bids != tuple(one.bids)

    def test_its_repr_is_short(self):
        assert repr(deep_book(1).bids) == (
            "Levels(Side.BID, [PriceLevel(price=Decimal('1'), accumulated_liquidity=1)])"
        )
        assert eval(repr(deep_book(3).bids)) == deep_book(3).bids  # a repr of ours
        text = repr(deep_book(5_000).bids)
        assert text.startswith(
            "<Levels: 5000 bids, best PriceLevel(price=Decimal('5000'), accumulated_liquidity=5000),"
        )
        assert len(text) < 300
        assert pretty(deep_book(5_000).bids) == text


class TestAmountAt:
    """`Levels.amount_at`: the liquidity at a price."""

    @given(books, prices())
    def test_it_is_the_amount_of_the_level_or_0(self, book: OrderBook, price: Decimal):
        for levels in (book.bids, book.asks):
            by_price = {level.price: level.accumulated_liquidity for level in levels}
            for at in {price, *by_price}:
                assert levels.amount_at(at) == levels.amount_at(str(at)) == by_price.get(at, 0)


class TestSharing:
    """Results that are computed once for all versions."""

    @given(data=st.data(), count=st.sampled_from([3, 63, 64, 65, 66, 200, 400]))
    def test_cached_json_is_never_stale(self, data: st.DataObject, count: int):
        book, totals = deep_book(count), {Decimal(price): price for price in range(1, count + 1)}
        prices = st.integers(1, count + 5) | st.sampled_from(ENDS)
        for _ in range(data.draw(st.integers(1, 6))):
            if data.draw(st.booleans()):
                wire.encoded_order_book(book)
            changes = data.draw(st.lists(st.tuples(prices.map(Decimal), st.integers(0, 3)), max_size=40))
            book = book.apply(bids=changes)
            totals |= dict(changes)
        fresh = OrderBook.from_levels(PAIR, bids=totals.items())
        assert wire.order_book_to_json(book) == wire.order_book_to_json(fresh)
        assert tuple(book.bids) == tuple(fresh.bids)
        assert book.bids[: count // 2] == fresh.bids[: count // 2]
        assert book.depth(count // 2) == fresh.depth(count // 2)

    def test_one_change_encodes_one_chunk(self):
        book = deep_book(5_000)
        before = wire.encoded_order_book(book)
        after = wire.encoded_order_book(book.apply(bids=[("2500", 7)]))
        assert len(after) == len(before) > 100
        assert sum(one is not other for one, other in zip(before, after, strict=True)) == 2  # that chunk, and the start
