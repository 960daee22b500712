"""What books are measured against: plain numbers, exact, and by definition instead of by method."""

from __future__ import annotations

from decimal import ROUND_UP, Context, Inexact, Overflow, Rounded, Subnormal, Underflow
from fractions import Fraction

from market_index import OrderBook, Side
from market_index.strategies import order_books

LARGEST_COEFFICIENT = 2**96 - 1

books = order_books(max_levels=4)
"""Half as deep as by default, and drawn in half the time."""

NARROW = Context(prec=1, rounding=ROUND_UP, Emin=0, Emax=0, traps=[Inexact, Rounded, Overflow, Underflow, Subnormal])
"""A caller's decimal context in which next to every operation raises."""


def levels_of(book: OrderBook, side: Side) -> list[tuple[Fraction, int]]:
    """Price and liquidity of each level, best first."""
    levels = book.bids if side is Side.BID else book.asks
    return [(Fraction(level.price), level.accumulated_liquidity) for level in levels]


def representable(ratio: Fraction, *, up: bool) -> Fraction:
    """The nearest number on that side of the ratio that a price can be: the best that any of the 29 grids has."""
    found = []
    for places in range(29):
        coefficient = -((-ratio * 10**places) // 1) if up else min(ratio * 10**places // 1, LARGEST_COEFFICIENT)
        if 0 < coefficient <= LARGEST_COEFFICIENT:
            found.append(Fraction(coefficient, 10**places))
    return min(found) if up else max(found)
