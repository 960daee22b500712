"""Independent models of prices and books, in exact fractions, for comparison with the library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_UP, Context, Decimal, Inexact, Overflow, Rounded, Subnormal, Underflow
from fractions import Fraction

from market_index import Order, OrderBook, Pair, PriceLevel, Side
from market_index.strategies import order_books

LARGEST_COEFFICIENT = 2**96 - 1

books = order_books(max_levels=4)
"""Books of half the default depth, which take half the time to draw."""

NARROW = Context(prec=1, rounding=ROUND_UP, Emin=0, Emax=0, traps=[Inexact, Rounded, Overflow, Underflow, Subnormal])
"""A decimal context of a caller in which almost every operation raises."""


def exact(levels: Iterable[PriceLevel]) -> list[tuple[Fraction, int]]:
    """Return the price and the liquidity of each level as exact numbers."""
    return [(Fraction(level.price), level.accumulated_liquidity) for level in levels]


def expected_levels(totals: dict[Fraction, int], side: Side) -> list[tuple[Fraction, int]]:
    """Return the levels that a side must have: the positive totals, bids falling and asks rising."""
    return sorted(((p, a) for p, a in totals.items() if a), reverse=side is Side.BID)


def books_of_orders(by_id: Mapping[str, Order], spots: Mapping[Pair, Decimal | None]) -> dict[Pair, OrderBook]:
    """Return the book of every tracked pair: each level is the total of its orders, at most 2^64-1."""
    books = {}
    for pair in {order.pair for order in by_id.values()} | spots.keys():
        totals: dict[Side, dict[Decimal, int]] = {side: {} for side in Side}
        for order in by_id.values():
            if order.pair == pair:
                of_side = totals[order.side]
                of_side[order.level_price] = of_side.get(order.level_price, 0) + order.amount
        bids, asks = ([(price, min(total, 2**64 - 1)) for price, total in totals[side].items()] for side in Side)
        books[pair] = OrderBook.from_levels(pair, bids, asks, spots.get(pair))
    return books


def levels_of(book: OrderBook, side: Side) -> list[tuple[Fraction, int]]:
    """Return the price and the liquidity of each level of a side, best price first."""
    return exact(book.bids if side is Side.BID else book.asks)


def is_price(number: Fraction) -> bool:
    """Whether the number is a coefficient from 1 to 2^96-1 over a power of ten up to 10^28 (decision 3)."""
    coefficients = (number * 10**places for places in range(29))
    return any(one.denominator == 1 and 1 <= one <= LARGEST_COEFFICIENT for one in coefficients)


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
