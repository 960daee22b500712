"""Simulated fills: what it would cost to take liquidity from one side of a book, and what it would bring."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal, TypeAlias, final

from attrs import field, frozen
from attrs.validators import instance_of

from market_index.arithmetic import EXACT
from market_index.depth import exact_number, liquidity, whole_number
from market_index.errors import safe_repr
from market_index.levels import Levels, Side, price_for_takers

Unit: TypeAlias = Literal["base", "quote"]
"""The unit of an amount: the smallest unit of the base asset, or of the quote asset."""

# More than any book is worth, and of so few digits that arithmetic with it is exact.
_MAX_QUOTE: Final = 10**90


@final
@frozen
class SimulatedFill:
    """What an amount would take from one side of a book; `OrderBook.simulate_fill` returns it. Nothing is executed.

    `filled` is a whole number in the smallest unit of the base asset; `paid` is its value in the smallest unit of the
    quote asset, exactly, so that it may have decimals. From asks `filled` is bought and `paid` is the cost; from bids
    `filled` is sold and `paid` is received. A ledger has whole units only: round a cost up, and what is received down.

    `average_price` is paid per filled, rounded as a level's price is: for asks up and for bids down, never to the
    taker's advantage. `worst_price` is that of the last level taken from. Both are None if nothing is filled.

    `levels` are the levels taken, best price first, the last one perhaps in part. `complete` tells whether the side had
    enough for the amount.

    Raises `TypeError` and `ValueError` for other values.
    """

    filled: int = field(validator=whole_number)
    paid: Decimal = field(validator=exact_number)
    levels: Levels = field(validator=instance_of(Levels))
    complete: bool = field(validator=instance_of(bool))

    @property
    def average_price(self) -> Decimal | None:
        """Paid per filled, rounded like the price of a level; None if nothing is filled."""
        return price_for_takers(self.levels.side, Fraction(self.paid) / self.filled) if self.filled else None

    @property
    def worst_price(self) -> Decimal | None:
        """The price of the last level taken from; None if nothing is filled."""
        return self.levels[-1].price if self.levels else None


def simulate_fill(levels: Levels, amount: int, unit: Unit) -> SimulatedFill:
    """Return what `amount` would take. Raises `TypeError` and `ValueError`, see `OrderBook.simulate_fill`."""
    if type(amount) is not int:
        raise TypeError(f"amount must be an int, got {type(amount).__name__}: {safe_repr(amount)}")
    if amount < 0:
        raise ValueError(f"amount must be 0 or more, got {safe_repr(amount)}")
    if unit not in ("base", "quote"):
        raise ValueError(f"unit must be 'base' or 'quote', got {safe_repr(unit)}")
    taken, complete = _taken_of_base(levels, amount) if unit == "base" else _taken_of_quote(levels, amount)
    total = liquidity(taken)
    return SimulatedFill(total.base, total.quote, taken, complete)


def _taken_of_base(levels: Levels, amount: int) -> tuple[Levels, bool]:
    """Return the levels that an amount of base units takes, and whether there were enough."""
    left, count = amount, 0
    for chunk in levels.chunks:
        for available in chunk.values:
            if left < available:
                return _cut(levels, count, left), True
            left -= available
            count += 1
    return levels, not left


def _taken_of_quote(levels: Levels, amount: int) -> tuple[Levels, bool]:
    """Return the levels that an amount of quote units takes, and whether there were enough."""
    left, count = Decimal(min(amount, _MAX_QUOTE)), 0
    for chunk in levels.chunks:
        for price, available in zip(chunk.keys, chunk.values, strict=True):
            value = EXACT.multiply(price, available)
            if left < value:
                # Of asks no more than the amount buys, of bids no less than brings it.
                whole, rest = EXACT.divmod(left, price)
                return _cut(levels, count, int(whole) + (levels.side is Side.BID and bool(rest))), True
            left = EXACT.subtract(left, value)
            count += 1
    return levels, not left


def _cut(levels: Levels, count: int, amount: int) -> Levels:
    """Return the best `count` levels, and the amount of the next one."""
    if not amount:
        return levels.head(count)
    taken = levels.head(count + 1)
    return taken.applied([(taken[-1].price, amount)])
