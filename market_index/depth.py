"""How much rests on one side of a book: running totals, what is near a price, and levels on a coarser grid."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from decimal import Decimal, localcontext
from itertools import accumulate, groupby
from operator import mul
from typing import Final, final

from attrs import frozen

from market_index.errors import InvalidPrice
from market_index.exact import EXACT, plain
from market_index.levels import (
    LIQUIDITY_OF,
    MAX_LIQUIDITY,
    PRICE_OF,
    Levels,
    PriceLevel,
    Side,
    refuse_total,
    rows,
    trusted_level,
)
from market_index.prices import to_price

_ONE: Final = Decimal(1)


@final
@frozen
class Liquidity:
    """What rests on one side of a book, or on a part of it.

    `base` is in the smallest unit of the base asset, a whole number; `quote` is what that is worth at the price of each
    level, in the smallest unit of the quote asset, exactly, so that it may have decimals.
    """

    base: int
    quote: Decimal


@final
@frozen
class CumulativeLevel:
    """A price of one side of a book, and what rests at it or at a better one: a step of a depth chart.

    `base` and `quote` are running totals, in the units of `Liquidity`.
    """

    price: Decimal
    base: int
    quote: Decimal


def cumulative(levels: Levels) -> tuple[CumulativeLevel, ...]:
    """Return the running totals of the levels of a side."""
    prices = tuple(map(PRICE_OF, levels))
    liquidities = tuple(map(LIQUIDITY_OF, levels))
    with localcontext(EXACT):
        quotes = map(plain, tuple(accumulate(map(mul, prices, liquidities))))
    return rows(CumulativeLevel, len(levels), prices, accumulate(liquidities), quotes)


def liquidity(levels: Levels) -> Liquidity:
    """Return the total of these levels."""
    liquidities = tuple(map(LIQUIDITY_OF, levels))
    with localcontext(EXACT):
        quote = sum(map(mul, map(PRICE_OF, levels), liquidities), start=Decimal(0))
    return Liquidity(sum(liquidities), plain(quote))


def within(side: Side, levels: Levels, mid: Decimal, share: Decimal) -> Levels:
    """Return the levels that are at most that share of the midpoint away from it, on the far side of it."""
    away = EXACT.subtract(_ONE, share) if side is Side.BID else EXACT.add(_ONE, share)
    bound = EXACT.multiply(mid, away)
    if side is Side.ASK:
        return levels[: bisect_right(levels, bound, key=PRICE_OF)]
    # Bids fall: negated they rise. Unlike a minus sign, copy_negate never rounds.
    return levels[: bisect_right(levels, bound.copy_negate(), key=_negated_price)]


def grouped(side: Side, levels: Levels, step: Decimal) -> Levels:
    """Return the levels gathered on the multiples of a step. Raises `InvalidOrderBook`, see `OrderBook.grouped`."""
    return tuple(_grouped(side, levels, step))


def _grouped(side: Side, levels: Levels, step: Decimal) -> Iterator[PriceLevel]:
    def multiple(level: PriceLevel) -> Decimal:
        whole, rest = EXACT.divmod(level.price, step)
        return EXACT.add(whole, _ONE) if rest and side is Side.ASK else whole

    for whole, cell in groupby(levels, key=multiple):
        gathered = list(cell)
        try:
            price = to_price(EXACT.multiply(whole, step))
        except InvalidPrice:
            # The edge of the cell is no price: zero, or of more digits than a price has.
            price = gathered[-1].price
        total = sum(map(LIQUIDITY_OF, gathered))
        if total > MAX_LIQUIDITY:
            refuse_total(side, price, total)
        yield trusted_level(price, total)


def _negated_price(level: PriceLevel) -> Decimal:
    return level.price.copy_negate()
