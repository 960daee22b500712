"""Analysis of one side of a book: running totals, liquidity near the midpoint, and levels on a coarser price grid.

All results are exact. The methods of `OrderBook` with these names are the public interface.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from itertools import accumulate, groupby
from operator import attrgetter, mul
from typing import Any, Final, final

from attrs import frozen

from market_index.errors import InvalidPrice
from market_index.levels import REPR_LEVELS, Levels, by_price, levels_of_totals, price_key
from market_index.prices import EXACT, plain, to_price
from market_index.value import Value, slot_setters, unchecked

_ZERO: Final = Decimal(0)


@final
@frozen(getstate_setstate=False)
class Liquidity(Value):
    """The liquidity of one side of a book, or of part of a side.

    `base` is a whole number in the smallest unit of the base asset. `quote` is the exact value at the price of each
    level, in the smallest unit of the quote asset, so it may have decimals.
    """

    base: int
    quote: Decimal


@final
@frozen(getstate_setstate=False)
class CumulativeLevel(Value):
    """A price of one side of a book, and the total liquidity at this and better prices: one step of a depth chart.

    `base` and `quote` are running totals, in the units of `Liquidity`.
    """

    price: Decimal
    base: int
    quote: Decimal


_SETTERS: Final = slot_setters(CumulativeLevel, "price", "base", "quote")


@final
class CumulativeLevels(tuple[CumulativeLevel, ...]):
    """The result of `OrderBook.cumulative`: a tuple of `CumulativeLevel`, best price first, with a short `repr`."""

    __slots__ = ()

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the columns by name: price, base and quote."""
        return {name: list(map(attrgetter(name), self)) for name in ("price", "base", "quote")}

    def __repr__(self) -> str:
        best = ", ".join(map(repr, self[:REPR_LEVELS]))
        if len(self) <= REPR_LEVELS:
            return f"CumulativeLevels([{best}])"
        return f"<CumulativeLevels: {len(self)} levels, best {best}, …, last {self[-1]!r}>"


def cumulative(levels: Levels) -> CumulativeLevels:
    """Return the running totals of the levels of a side."""
    prices, amounts = levels.prices, levels.amounts
    with localcontext(EXACT):
        # As `plain`, for numbers that are not negative.
        quotes = map(EXACT.normalize, accumulate(map(mul, prices, amounts)))
        return CumulativeLevels(unchecked(CumulativeLevel, _SETTERS, prices, accumulate(amounts), quotes))


def totals(levels: Levels) -> tuple[int, Decimal]:
    """Return the liquidity of these levels in base and in quote units."""
    base, quote = 0, _ZERO
    with localcontext(EXACT):
        for chunk in by_price(levels).chunks:
            base += sum(chunk.values)
            quote = sum(map(mul, chunk.keys, chunk.values), start=quote)
    return base, plain(quote)


def up_to(levels: Levels, limit: Decimal) -> Levels:
    """Return the levels whose price is the limit or better."""
    return levels.depth(by_price(levels).count_to(limit))


def grouped(levels: Levels, step: Decimal) -> Levels:
    """Return the levels rounded to multiples of a step and summed. See `OrderBook.grouped` for the errors."""
    side = levels.side
    sums: dict[str, int] = {}
    with localcontext(EXACT):
        for steps, cell in groupby(levels.items(), key=lambda entry: side.rounded(*divmod(entry[0], step))):
            prices, amounts = zip(*cell, strict=True)
            try:
                price = to_price(steps * step)
            except InvalidPrice:
                # The multiple is not a price: it is zero, or has too many digits.
                price = prices[-1]
            sums[price_key(price)] = sum(amounts)
    return levels_of_totals(side, sums)
