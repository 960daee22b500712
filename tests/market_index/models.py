"""What books are measured against: plain numbers, exact, and by definition instead of by method."""

from __future__ import annotations

from fractions import Fraction

from market_index import OrderBook, Side

LARGEST_COEFFICIENT = 2**96 - 1


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
