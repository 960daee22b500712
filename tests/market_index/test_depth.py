"""Running totals, liquidity near the midpoint, and coarser grids, each compared with plain sums over all levels."""

from __future__ import annotations

import pickle
from collections import defaultdict
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, CumulativeLevel, InvalidOrderBook, InvalidPrice, Liquidity, OrderBook, Pair, Side
from market_index.levels import by_price
from market_index.strategies import prices
from tests.market_index.models import LARGEST_COEFFICIENT, NARROW, books, is_price, levels_of

PAIR = Pair(AssetId(bytes(28), b"SNEK"), ADA)
SIDES = st.sampled_from(Side)


def at_least_as_good(side: Side, price: Fraction, other: Fraction) -> bool:
    return price >= other if side is Side.BID else price <= other


class TestCumulative:
    """Running totals."""

    @given(books, SIDES)
    def test_each_total_is_the_liquidity_at_its_price_or_better(self, book: OrderBook, side: Side):
        levels = levels_of(book, side)
        with localcontext(NARROW):
            totals = book.cumulative(side)
        assert [Fraction(total.price) for total in totals] == [price for price, _ in levels]
        for total in totals:
            better = [
                (price, amount) for price, amount in levels if at_least_as_good(side, price, Fraction(total.price))
            ]
            assert total.base == sum(amount for _, amount in better)
            assert Fraction(total.quote) == sum(price * amount for price, amount in better)

    def test_the_largest_numbers_are_exact(self):
        levels = [(str(LARGEST_COEFFICIENT - number), 2**64 - 1) for number in range(3)]
        levels.append(("1e-28", 2**64 - 1))
        end = OrderBook.from_levels(PAIR, bids=levels).cumulative(Side.BID)[-1]
        assert end == CumulativeLevel(
            Decimal("1e-28"),
            4 * (2**64 - 1),
            Decimal(f"{(3 * (LARGEST_COEFFICIENT - 1) * 10**28 + 1) * (2**64 - 1)}E-28"),
        )


class TestLiquidityWithin:
    """Liquidity within a ratio of the midpoint."""

    @given(books, SIDES, prices())
    def test_it_is_the_sum_of_the_levels_within_the_bound(self, book: OrderBook, side: Side, ratio: Decimal):
        with localcontext(NARROW):
            near = book.liquidity_within(side, ratio)
        bids, asks = levels_of(book, Side.BID), levels_of(book, Side.ASK)
        if not bids or not asks:
            assert near is None
            return
        mid = (bids[0][0] + asks[0][0]) / 2
        bound = mid * (1 - Fraction(ratio)) if side is Side.BID else mid * (1 + Fraction(ratio))
        within = [(price, amount) for price, amount in levels_of(book, side) if at_least_as_good(side, price, bound)]
        assert near is not None
        assert near.base == sum(amount for _, amount in within)
        assert Fraction(near.quote) == sum(price * amount for price, amount in within)

    def test_the_bounds_are_included(self):
        book = OrderBook.from_levels(PAIR, [("99", 1), ("98", 2), ("97.9", 4)], [("101", 1), ("102", 2), ("102.1", 4)])
        assert book.liquidity_within(Side.BID, "0.02") == Liquidity(3, Decimal(295))
        assert book.liquidity_within(Side.ASK, "0.02") == Liquidity(3, Decimal(305))
        assert book.liquidity_within(Side.BID, "0.0099") == Liquidity(0, Decimal(0))
        assert book.liquidity_within(Side.BID, "7") == Liquidity(7, Decimal("686.6"))

    @pytest.mark.parametrize("distance", [0, 1, 60, 500, 999])
    def test_a_deep_side_is_summed_up_to_the_bound(self, distance: int):
        # The midpoint is 1000.
        near, far = [(str(1000 - n), n) for n in range(1, 1000)], [(str(1000 + n), n) for n in range(1, 1000)]
        book = OrderBook.from_levels(PAIR, bids=near, asks=far)
        assert len(by_price(book.bids).chunks) > 5
        for side in Side:
            liquidity = book.liquidity_within(side, Decimal(2 * distance + 1) / 2000)
            assert liquidity is not None
            assert liquidity.base == distance * (distance + 1) // 2

    def test_a_bound_of_many_digits_is_exact(self):
        # 2 % below the midpoint is 0.98 + 0.98e-28.
        bids = [("1.0000000000000000000000000001", 1), ("0.9800000000000000000000000001", 2), ("0.98", 4)]
        book = OrderBook.from_levels(PAIR, bids, asks=[("1.0000000000000000000000000001", 8)])
        with localcontext(NARROW):
            near = book.liquidity_within(Side.BID, "0.02")
            further = book.liquidity_within(Side.BID, "0.0200000000000000000000000001")
        assert near is not None
        assert further is not None
        assert (near.base, further.base) == (3, 7)


class TestGrouped:
    """Levels on a coarser price grid."""

    @given(books, prices())
    def test_totals_are_kept_and_no_price_gets_better(self, book: OrderBook, step: Decimal):
        sums = [
            sum(amount for _, amount in cell) for side in Side for cell in cells(book, side, Fraction(step)).values()
        ]
        if any(total >= 2**64 for total in sums):
            with pytest.raises(InvalidOrderBook, match=r"must be at most 2\^64-1, got \d+"):
                book.grouped(step)
            return
        with localcontext(NARROW):
            grouped = book.grouped(step)
        assert (grouped.pair, grouped.spot) == (book.pair, book.spot)
        assert OrderBook(book.pair, grouped.bids, grouped.asks, book.spot) == grouped
        assert grouped.grouped(step) == grouped
        for side in Side:
            found, expected = levels_of(grouped, side), cells(book, side, Fraction(step))
            assert len(found) == len(expected)
            for (price, total), (multiple, cell) in zip(found, expected.items(), strict=True):
                assert total == sum(amount for _, amount in cell)
                worst = min(price for price, _ in cell) if side is Side.BID else max(price for price, _ in cell)
                assert at_least_as_good(side, worst, price)
                assert price == (multiple if is_price(multiple) else worst)
        assert not grouped.is_crossed or book.is_crossed

    def test_a_total_above_the_maximum_is_rejected_with_its_price(self):
        book = OrderBook.from_levels(PAIR, asks=[("0.25", 2**64 - 1), ("0.26", 1)])
        with pytest.raises(InvalidOrderBook, match=r"the total of the asks at 0\.3 must be at most 2\^64-1, got \d+"):
            book.grouped("0.1")


def cells(book: OrderBook, side: Side, step: Fraction) -> dict[Fraction, list[tuple[Fraction, int]]]:
    """Return the levels by the multiple of the step that each is rounded to, in the order of the side."""
    found = defaultdict(list)
    for price, amount in levels_of(book, side):
        multiple = price // step if side is Side.BID else -(-price // step)
        found[multiple * step].append((price, amount))
    return dict(found)


@pytest.mark.parametrize("wrong", ["0", "-0.1", "2%", 0.02, 1, None])
def test_a_side_is_a_side_and_a_number_is_exact_and_above_zero(wrong: Any):
    book: Any = OrderBook(PAIR)
    for analyse in (book.cumulative, lambda side: book.liquidity_within(side, "0.02")):
        with pytest.raises(InvalidOrderBook, match=r"^side must be Side\.BID or Side\.ASK, got"):
            analyse(wrong)
    with pytest.raises(InvalidPrice, match=r"^the ratio must "):
        book.liquidity_within(Side.BID, wrong)
    with pytest.raises(InvalidPrice, match=r"^the step must "):
        book.grouped(wrong)


def test_the_repr_of_many_running_totals_is_short():
    book = OrderBook.from_levels(PAIR, bids=[(f"0.{number:05}1", 10**12) for number in range(5_000)])
    totals = book.cumulative(Side.BID)
    assert repr(totals).startswith(f"<CumulativeLevels: 5000 levels, best {totals[0]!r}, {totals[1]!r}, ")
    assert len(repr(totals)) < 600
    assert repr(totals).endswith(f"…, last {totals[-1]!r}>")
    assert totals == tuple(totals)
    assert pickle.loads(pickle.dumps(totals)) == totals
