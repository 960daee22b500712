"""One side of a book as a sequence, compared with a tuple, and the chunks that versions share."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import accumulate, product
from typing import Any, cast
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

from market_index import (
    ADA,
    AssetId,
    InvalidOrderBook,
    InvalidPrice,
    Levels,
    Order,
    OrderBook,
    Pair,
    PriceLevel,
    Side,
    sorted_map,
    wire,
)
from market_index.display import Tokens
from market_index.errors import safe_repr
from market_index.levels import by_price
from market_index.sorted_map import BOUNDARY_MASK
from market_index.strategies import prices
from tests.market_index.models import books

PAIR = Pair(AssetId(bytes(28), b"SNEK"), ADA)
# Prices at which a chunk of a large side ends.
ENDS = [price for price in range(1, 400) if not crc32(str(price).encode()) & BOUNDARY_MASK]


def deep_book(count: int) -> OrderBook:
    return OrderBook.from_levels(PAIR, bids=[(str(price), price) for price in range(1, count + 1)])


class TestPriceLevel:
    """The bounds of a price level."""

    @pytest.mark.decision(1)
    @pytest.mark.parametrize("liquidity", [1, 2**53 + 1, 2**64 - 1])
    def test_liquidity_is_a_whole_number_from_1_to_2_64_minus_1(self, liquidity: int):
        assert PriceLevel("1", liquidity).accumulated_liquidity == liquidity

    @pytest.mark.parametrize(
        "liquidity", [0, -1, 2**64, pytest.param(10**6000, id="huge"), True, 1.0, "1", Decimal(1), None]
    )
    def test_any_other_liquidity_is_rejected(self, liquidity: object):
        with pytest.raises(InvalidOrderBook) as raised:
            PriceLevel(Decimal(1), liquidity)  # type: ignore[arg-type]  # a caller without types
        given = safe_repr(liquidity) if type(liquidity) is int else f"{type(liquidity).__name__}: {liquidity!r}"
        assert str(raised.value) == (
            f"accumulated_liquidity must be a whole number (int) from 1 to 2^64-1, got {given}"
        )

    def test_a_float_as_price_is_rejected_with_the_remedy(self):
        with pytest.raises(InvalidPrice, match=r"pass '0\.1' or Decimal\('0\.1'\)"):
            PriceLevel(0.1, 1)  # type: ignore[arg-type]  # a caller without types

    def test_0_10_and_0_1_are_one_price(self):
        assert PriceLevel("0.10", 1) == PriceLevel("0.1", 1)
        assert repr(PriceLevel("0.10", 1)) == repr(PriceLevel("0.1", 1))


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

    def test_a_slice_of_the_best_levels_reads_only_their_chunks(self):
        bids = deep_book(2_000).bids
        first, second, *others = by_price(bids).chunks
        assert len(others) > 1
        best = tuple(bids)[: len(first.keys) + len(second.keys) - 1]
        for chunk in others:
            chunk.keys = ()
            del chunk.values[:]
        assert tuple(bids[: len(best)]) == best
        assert bids[0] == best[0]

    def test_the_last_levels_are_found_from_the_end(self):
        bids = deep_book(400).bids
        worst = tuple(bids)[-1]
        for chunk in by_price(bids).chunks[:-2]:
            chunk.keys = ()
        assert bids[-1] == worst

    def test_iteration_creates_only_the_levels_of_one_chunk(self):
        bids = deep_book(400).bids
        best = bids[0]
        for chunk in by_price(bids).chunks[1:]:
            chunk.keys = cast("Any", None)
        assert next(iter(bids)) == best

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
            assert book.asks[position] == level

    def test_a_level_is_found_by_its_price_and_amount(self):
        bids = deep_book(3).bids
        other = PriceLevel(bids[0].price, bids[0].accumulated_liquidity + 1)
        assert other not in bids

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

    def test_different_levels_have_different_hashes(self):
        assert len({hash(deep_book(count).bids) for count in range(10)}) == 10

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

    @pytest.mark.parametrize("side", Side)
    def test_a_level_is_found_in_each_chunk(self, side: Side):
        entries = [(str(price), price) for price in range(1, 1_000)]
        book = OrderBook.from_levels(PAIR, entries, entries)
        levels = book.bids if side is Side.BID else book.asks
        assert len(by_price(levels).chunks) > 2
        assert all(levels.amount_at(price) == amount for price, amount in entries)
        assert levels.amount_at("1000") == levels.amount_at("0.5") == levels.amount_at("7.5") == 0

    @pytest.mark.parametrize("price", [0.5, 1, None, "x"])
    def test_a_value_that_is_not_a_price_is_rejected(self, price):
        with pytest.raises(InvalidPrice):
            OrderBook.from_levels(PAIR, asks=[("0.5", 7)]).asks.amount_at(price)


class TestConstructor:
    """The constructor validates all levels, as that of a book, whose test has the faults."""

    def test_the_side_must_be_a_side(self):
        with pytest.raises(InvalidOrderBook, match=r"side must be Side\.BID or Side\.ASK, got 'bid'"):
            Levels("bid")  # type: ignore[arg-type]  # a caller without types

    def test_levels_of_the_other_side_are_validated_again(self):
        bids = deep_book(2).bids
        with pytest.raises(InvalidOrderBook, match=r"asks\[1\]\.price must be above"):
            OrderBook(PAIR, asks=bids)


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

    def test_the_changes_of_a_chunk_are_made_in_the_order_of_its_keys(self, monkeypatch: pytest.MonkeyPatch):
        # An insertion moves the keys after it. Of 10,000 in falling order, each would move all those before.
        edited, made = sorted_map._edited, list[Decimal]()

        def recorded(order: Any, chunk: Any, changes: Any) -> Any:
            made.extend([key for _, key, _ in changes])
            return edited(order, chunk, changes)

        monkeypatch.setattr(sorted_map, "_edited", recorded)
        book = OrderBook.from_levels(PAIR, asks=[("0.5", 1), ("20000", 1)])
        book.apply(asks=[(str(price), 1) for price in range(10_000, 0, -1)])
        assert made == list(range(1, 10_001))

    def test_one_change_encodes_one_chunk(self):
        book = deep_book(5_000)
        before = wire.encoded_order_book(book)
        after = wire.encoded_order_book(book.apply(bids=[("2500", 7)]))
        assert len(after) == len(before) > 100
        assert sum(one is not other for one, other in zip(before, after, strict=True)) == 2  # that chunk, and the start
