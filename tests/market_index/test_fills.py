"""Simulated fills, compared with a model that takes single units from the best price on."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import floor
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    ADA,
    AssetId,
    InvalidOrderBook,
    InvalidPrice,
    Levels,
    OrderBook,
    Pair,
    Side,
    SimulatedFill,
)
from market_index.prices import price_for_takers
from market_index.strategies import prices
from tests.market_index.models import NARROW, books, levels_of

PAIR = Pair(AssetId(bytes(28), b"SNEK"), ADA)
SIDES = st.sampled_from(Side)


def worth(book: OrderBook, side: Side, base: int) -> Fraction:
    """Return the value of the best `base` base units: an independent model, by the definition of a price."""
    total = Fraction(0)
    for price, liquidity in levels_of(book, side):
        taken = min(base, liquidity)
        total += price * taken
        base -= taken
    return total


def simulated(book: OrderBook, side: Side) -> Callable[..., SimulatedFill]:
    """Return the method that takes from a side."""
    return book.buy if side is Side.ASK else book.sell


def held(book: OrderBook, side: Side) -> int:
    return sum(liquidity for _, liquidity in levels_of(book, side))


@st.composite
def amounts_near(draw: st.DrawFn, total: Fraction) -> int:
    """Draw amounts from 0 to more than the side has, often near the boundary."""
    edge = floor(total)
    return max(0, draw(st.integers(0, 2 * edge + 2) | st.integers(edge - 2, edge + 2) | st.integers(0, 5)))


def consistent(fill: SimulatedFill, side: Side) -> bool:
    """Whether the totals of a fill agree with its levels."""
    taken = [(Fraction(level.price), level.accumulated_liquidity) for level in fill.levels]
    assert fill.filled == sum(amount for _, amount in taken)
    assert Fraction(fill.paid) == sum(price * amount for price, amount in taken)
    if not taken:
        return (fill.filled, fill.paid, fill.average_price, fill.worst_price) == (0, Decimal(0), None, None)
    assert fill.average_price is not None
    assert fill.worst_price == fill.levels[-1].price
    exact = sum((price * amount for price, amount in taken), start=Fraction(0)) / fill.filled
    assert fill.average_price == price_for_takers(side, exact)
    best, worst = sorted((fill.levels[0].price, fill.worst_price), reverse=side is Side.BID)
    return best <= fill.average_price <= worst if side is Side.ASK else best >= fill.average_price >= worst


class TestBase:
    """An amount in base units."""

    @given(st.data(), books, SIDES)
    def test_it_takes_the_best_units_and_never_more_than_the_side_has(
        self, data: st.DataObject, book: OrderBook, side: Side
    ):
        total = held(book, side)
        amount = data.draw(amounts_near(Fraction(total)))
        with localcontext(NARROW):
            fill = simulated(book, side)(amount)
        assert consistent(fill, side)
        assert fill.filled == min(amount, total)
        assert Fraction(fill.paid) == worth(book, side, amount)
        assert fill.complete == (amount <= total)
        assert fill == simulated(book, side)(amount, unit="base")


class TestLimit:
    """A limit price: the fill of the book that has only the levels within it."""

    @given(st.data(), books, SIDES, prices(), st.sampled_from(["base", "quote"]))
    def test_it_is_the_fill_of_the_levels_within_the_limit(
        self, data: st.DataObject, book: OrderBook, side: Side, limit: Decimal, unit: Literal["base", "quote"]
    ):
        levels = book.side(side)
        limit = data.draw(st.sampled_from([limit, *levels.prices]))
        within = [level for level in levels if not side.is_better(limit, level.price)]
        rest = OrderBook(book.pair, asks=within) if side is Side.ASK else OrderBook(book.pair, bids=within)
        amount = data.draw(amounts_near(Fraction(held(book, side))))
        with localcontext(NARROW):
            found = simulated(book, side)(amount, unit, limit=limit)
        assert found == simulated(rest, side)(amount, unit)


class TestQuote:
    """An amount in quote units, also with the fee of a venue: a share of each price."""

    @given(st.data(), books, SIDES, st.none() | prices(max_value="0.9999"))
    def test_a_purchase_is_the_largest_and_a_sale_the_smallest_and_the_total_has_the_fee(
        self, data: st.DataObject, book: OrderBook, side: Side, fee: Decimal | None
    ):
        factor = 1 + Fraction(fee or 0) if side is Side.ASK else 1 - Fraction(fee or 0)
        whole = held(book, side)
        total = worth(book, side, whole) * factor
        amount = data.draw(amounts_near(total))
        with localcontext(NARROW):
            of_base, fill = simulated(book, side)(amount, fee=fee), simulated(book, side)(amount, "quote", fee=fee)
        plain = simulated(book, side)(amount)
        assert (of_base.levels, of_base.paid) == (plain.levels, plain.paid)
        for one in (of_base, fill):
            assert consistent(one, side)
            assert Fraction(one.total) == Fraction(one.paid) * factor
        assert Fraction(fill.paid) == worth(book, side, fill.filled)
        assert fill.levels == simulated(book, side)(fill.filled).levels
        assert fill.complete == (amount <= total)
        if side is Side.ASK:
            assert fill.total <= amount
            assert fill.filled == whole or worth(book, side, fill.filled + 1) * factor > amount
        elif fill.complete:
            assert fill.total >= amount
            assert fill.filled == 0 or worth(book, side, fill.filled - 1) * factor < amount
        else:
            assert fill.filled == whole


class TestExamples:
    """Questions of a trader."""

    BOOK = OrderBook.from_levels(
        PAIR, bids=[("0.5", 100), ("0.3", 100)], asks=[("0.7", 100), ("0.9", 100), ("1.1", 5)], spot="0.6"
    )

    def test_an_amount_below_the_price_of_one_unit_buys_nothing_and_is_complete(self):
        nothing = SimulatedFill(0, Decimal(0), Decimal(0), Levels(Side.ASK), complete=True)
        assert OrderBook.from_levels(PAIR, asks=[("3", 1)]).buy(2, "quote") == nothing

    def test_an_amount_may_exceed_all_levels(self):
        for unit in ("base", "quote"):
            fill = self.BOOK.buy(10**5000, unit)
            assert (fill.filled, fill.complete) == (205, False)

    def test_the_largest_numbers_are_exact(self):
        finest = OrderBook.from_levels(PAIR, asks=[(Decimal(f"{2**96 - 1}E-28"), 2**64 - 1)])
        for amount in (10**90, 10**95):
            fill = finest.buy(amount, "quote")
            assert Fraction(fill.paid) == Fraction(2**96 - 1, 10**28) * (2**64 - 1)
            assert not fill.complete
        largest = OrderBook.from_levels(PAIR, bids=[(str(2**96 - 1 - number), 2**64 - 1) for number in range(10)])
        worth_of_all = sum((2**96 - 1 - number) * (2**64 - 1) for number in range(10))
        assert largest.sell(worth_of_all, "quote").complete
        assert not largest.sell(worth_of_all + 1, "quote").complete
        assert largest.sell(worth_of_all - 1, "quote").paid == worth_of_all

    @pytest.mark.parametrize(
        ("arguments", "options", "kind", "reason"),
        [
            ((-1,), {}, InvalidOrderBook, "amount must be a whole number (int) of 0 or more, got -1"),
            ((1, "ada"), {}, ValueError, "unit must be 'base' or 'quote', got 'ada'"),
            ((1, ["base"]), {}, ValueError, "unit must be 'base' or 'quote', got ['base']"),
            ((1,), {"limit": "0"}, InvalidPrice, "the limit must be above 0, got '0'"),
            ((1,), {"fee": "1"}, InvalidPrice, "the fee must be below 1, got '1'; '0.003' is 0.3 %"),
            ((1,), {"fee": "-0.1"}, InvalidPrice, "the fee must be ASCII digits with"),
        ],
    )
    def test_invalid_arguments_are_rejected(self, arguments, options, kind, reason):
        for simulate in (self.BOOK.buy, self.BOOK.sell):
            with pytest.raises(kind) as raised:
                simulate(*arguments, **options)
            assert str(raised.value).startswith(reason)


class TestSlippage:
    """The share by which the average price is worse than a reference."""

    @given(st.data(), books, SIDES)
    def test_it_is_exact_against_the_best_price_and_the_midpoint(
        self, data: st.DataObject, book: OrderBook, side: Side
    ):
        amount = data.draw(amounts_near(Fraction(held(book, side))))
        with localcontext(NARROW):
            fill = simulated(book, side)(amount)
            found = {reference: fill.slippage(reference) for reference in (fill.best_price, book.mid)}
        assert fill.best_price == (fill.levels[0].price if fill.filled else None)
        for reference, slippage in found.items():
            if not fill.filled or reference is None:
                assert slippage is None
                continue
            assert slippage is not None
            ratio = Fraction(fill.paid) / fill.filled / Fraction(reference)
            exact = ratio - 1 if side is Side.ASK else 1 - ratio
            assert 0 <= Fraction(slippage) - exact < Fraction(1, 10**28)
        assert not fill.filled or (found[fill.best_price] or 0) >= 0

    def test_a_price_better_than_the_reference_is_negative(self):
        book = OrderBook.from_levels(PAIR, bids=[("2", 5)], asks=[("4", 5)])
        assert book.buy(5).slippage("5") == Decimal("-0.2")
        assert book.sell(5).slippage(Fraction(1)) == -1
        with pytest.raises(InvalidPrice, match="the reference must be above 0, got '0'"):
            book.buy(5).slippage("0")
