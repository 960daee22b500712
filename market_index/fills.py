"""Simulated fills: the cost or the proceeds of taking an amount from one side of a book.

Nothing is executed. All results are exact. `OrderBook.simulate_fill` is the public interface.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from operator import mul
from typing import Any, Final, Literal, TypeAlias, final

from attrs import frozen

from market_index.depth import require_totals, totals
from market_index.errors import InvalidOrderBook, safe_repr
from market_index.levels import Levels, by_price, require_amount
from market_index.prices import EXACT, Side, price_for_takers, to_ratio
from market_index.printing import repr_html
from market_index.value import Value

Unit: TypeAlias = Literal["base", "quote"]
"""The unit of an amount: the smallest unit of the base asset, or of the quote asset."""

FIGURES: Final = ("filled", "paid", "average_price", "best_price", "worst_price", "complete")
"""The columns of a simulated fill."""

# Above the value of any book, with so few digits that arithmetic is exact.
_MAX_QUOTE: Final = 10**90


@final
@frozen(getstate_setstate=False)
class SimulatedFill(Value):
    """The result of `OrderBook.simulate_fill`: the trade that an amount would make with one side of a book.

    `filled` is a whole number in the smallest unit of the base asset. `paid` is its exact value in the smallest unit of
    the quote asset, so it may have decimals. With asks, `filled` is bought and `paid` is the cost. With bids, `filled`
    is sold and `paid` are the proceeds. A ledger has only whole units: round a cost up and proceeds down.

    `levels` are the levels taken, best price first; the last one may be taken in part. `complete` is whether the side
    had enough for the amount.

    Raises:
        InvalidOrderBook: A field has a wrong type, or a total is negative. Whether the fields agree is not validated.
    """

    filled: int
    paid: Decimal
    levels: Levels
    complete: bool

    def __attrs_post_init__(self) -> None:
        require_totals(self.filled, self.paid)
        if type(self.levels) is not Levels:
            raise InvalidOrderBook(f"levels must be Levels, got {safe_repr(self.levels)}")
        if type(self.complete) is not bool:
            raise InvalidOrderBook(f"complete must be a bool, got {safe_repr(self.complete)}")

    @property
    def average_price(self) -> Decimal | None:
        """`paid` per `filled`, rounded up for asks and down for bids; None if nothing is filled."""
        return price_for_takers(self.levels.side, Fraction(self.paid) / self.filled) if self.filled else None

    @property
    def best_price(self) -> Decimal | None:
        """The price of the first level taken; None if nothing is filled."""
        return self.levels[0].price if self.levels else None

    @property
    def worst_price(self) -> Decimal | None:
        """The price of the last level taken; None if nothing is filled."""
        return self.levels[-1].price if self.levels else None

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the figures by name, as the columns of a table with one row."""
        return {name: [getattr(self, name)] for name in FIGURES}

    def slippage(self, reference: Decimal | Fraction | str | None) -> Fraction | None:
        """Return by which share the exact average price is worse than a reference; negative if it is better.

        The reference is `fill.best_price`, `book.mid`, or another price, in smallest units. The result is None if
        nothing is filled, or if the reference is None: a book without bids has no midpoint.

        >>> from market_index import ADA, AssetId, OrderBook, Pair
        >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
        >>> book = OrderBook.from_levels(pair, bids=[("0.4", 1)], asks=[("0.5", 100), ("0.6", 100)])
        >>> purchase = book.simulate_fill(Side.ASK, 150)
        >>> purchase.slippage(purchase.best_price), purchase.slippage(book.mid)
        (Fraction(1, 15), Fraction(5, 27))

        Raises:
            InvalidPrice: The reference is not a number above 0.
        """
        if reference is None or not self.filled:
            return None
        ratio = Fraction(self.paid) / self.filled / to_ratio(reference, "the reference")
        return ratio - 1 if self.levels.side is Side.ASK else 1 - ratio

    _repr_html_ = repr_html


def simulate_fill(levels: Levels, amount: int, unit: Unit) -> SimulatedFill:
    """Return the simulated fill of an amount. See `OrderBook.simulate_fill` for the errors."""
    require_amount("amount", amount, is_bounded=False)
    if unit not in ("base", "quote"):
        raise ValueError(f"unit must be 'base' or 'quote', got {safe_repr(unit)}")
    taken, complete = _taken(levels, amount, unit)
    return SimulatedFill(*totals(taken), taken, complete)


def _taken(levels: Levels, amount: int, unit: Unit) -> tuple[Levels, bool]:
    """Return the levels that an amount takes, and whether the side had enough."""
    is_base, taken = unit == "base", by_price(levels)
    left: int | Decimal = amount if is_base else Decimal(min(amount, _MAX_QUOTE))
    with localcontext(EXACT):
        for count, value in enumerate(taken.values() if is_base else map(mul, taken.keys(), taken.values())):
            if left < value:
                # Whole base units: a purchase takes fewer, a sale takes more.
                rest = left if is_base else levels.side.opposite.rounded(*divmod(left, levels[count].price))
                return _cut(levels, count, int(rest)), True
            left -= value
    return levels, not left


def _cut(levels: Levels, count: int, amount: int) -> Levels:
    """Return the best `count` levels, and the next one with this amount."""
    if not amount:
        return levels.depth(count)
    taken = levels.depth(count + 1)
    return taken.applied([(taken[-1].price, amount)])
