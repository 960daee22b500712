"""Independent models of prices and books, in exact fractions, for comparison with the library."""

from __future__ import annotations

from decimal import ROUND_UP, Context, Decimal, Inexact, Overflow, Rounded, Subnormal, Underflow
from fractions import Fraction

from market_index import OrderBook, Side
from market_index.strategies import order_books

LARGEST_COEFFICIENT = 2**96 - 1

books = order_books(max_levels=4)
"""Books of half the default depth, which take half the time to draw."""

NARROW = Context(prec=1, rounding=ROUND_UP, Emin=0, Emax=0, traps=[Inexact, Rounded, Overflow, Underflow, Subnormal])
"""A decimal context of a caller in which almost every operation raises."""


def levels_of(book: OrderBook, side: Side) -> list[tuple[Fraction, int]]:
    """Return the price and the liquidity of each level, best price first."""
    levels = book.bids if side is Side.BID else book.asks
    return [(Fraction(level.price), level.accumulated_liquidity) for level in levels]


def representable(ratio: Fraction, *, up: bool) -> Fraction:
    """Return the nearest price that is not below the ratio (`up`) or not above it: the best of all 29 grids."""
    found = []
    for places in range(29):
        coefficient = -((-ratio * 10**places) // 1) if up else min(ratio * 10**places // 1, LARGEST_COEFFICIENT)
        if 0 < coefficient <= LARGEST_COEFFICIENT:
            found.append(Fraction(coefficient, 10**places))
    return min(found) if up else max(found)


class MisreportingDecimal(Decimal):
    """A subclass whose methods return the text and the exponent of another number."""

    def __format__(self, specification: str, /, *_: object) -> str:
        return "0.1"

    def __str__(self) -> str:
        return "0.1"

    def adjusted(self) -> int:
        return 0
