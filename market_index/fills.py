"""What it costs to take liquidity off one side of a book, and what it brings: the walk down its levels."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal, TypeAlias, final

from attrs import frozen

from market_index.depth import liquidity
from market_index.errors import safe_repr
from market_index.exact import EXACT
from market_index.levels import Levels, Side, price_for_takers, trusted_level

Unit: TypeAlias = Literal["base", "quote"]
"""What an amount is counted in: the smallest unit of the base asset, or that of the quote asset."""

# More than any book is worth, and of so few digits that arithmetic with it is exact.
_MOST: Final = 10**90


@final
@frozen
class Fill:
    """What an amount takes of one side of a book; `OrderBook.fill` makes it.

    `filled` is in the smallest unit of the base asset, a whole number; `paid` is what that comes to in the smallest
    unit of the quote asset, exactly, so that it may have decimals. Of asks `filled` is bought and `paid` is the cost;
    of bids `filled` is sold and `paid` is received. A ledger knows whole units alone: round a cost up, and what is
    received down.

    `average_price` is paid per filled, rounded as a level's price is: for asks up and for bids down, never to the
    taker's advantage. `worst_price` is that of the last level taken from. Both are None where nothing is filled.

    `levels` is what was taken, best price first: whole levels, and of the last one perhaps a part. `complete` tells
    whether the side held enough for the amount.
    """

    filled: int
    paid: Decimal
    average_price: Decimal | None
    worst_price: Decimal | None
    levels: Levels
    complete: bool


def fill(side: Side, levels: Levels, amount: int, unit: Unit) -> Fill:
    """Return what `amount` takes of the levels of a side. Raises `TypeError` and `ValueError`, see `OrderBook.fill`."""
    if type(amount) is not int:
        raise TypeError(f"amount must be an int, not {type(amount).__name__}: {safe_repr(amount)}")
    if amount < 0:
        raise ValueError(f"amount must be 0 or more, not {safe_repr(amount)}")
    if unit not in ("base", "quote"):
        raise ValueError(f"unit must be 'base' or 'quote', not {safe_repr(unit)}")
    taken, complete = _taken_of_base(levels, amount) if unit == "base" else _taken_of_quote(side, levels, amount)
    total = liquidity(taken)
    if not taken:
        return Fill(total.base, total.quote, None, None, taken, complete)
    average_price = price_for_takers(side, Fraction(total.quote) / total.base)
    return Fill(total.base, total.quote, average_price, taken[-1].price, taken, complete)


def _taken_of_base(levels: Levels, amount: int) -> tuple[Levels, bool]:
    left = amount
    for count, level in enumerate(levels):
        if left < level.accumulated_liquidity:
            return _cut(levels, count, left), True
        left -= level.accumulated_liquidity
    return levels, not left


def _taken_of_quote(side: Side, levels: Levels, amount: int) -> tuple[Levels, bool]:
    left = Decimal(min(amount, _MOST))
    for count, level in enumerate(levels):
        worth = EXACT.multiply(level.price, level.accumulated_liquidity)
        if left < worth:
            # Of asks no more than the amount buys, of bids no less than brings it.
            whole, rest = EXACT.divmod(left, level.price)
            return _cut(levels, count, int(whole) + (side is Side.BID and bool(rest))), True
        left = EXACT.subtract(left, worth)
    return levels, not left


def _cut(levels: Levels, count: int, amount: int) -> Levels:
    """Return the first `count` levels, and of the next one the amount."""
    taken = levels[:count]
    return (*taken, trusted_level(levels[count].price, amount)) if amount else taken
