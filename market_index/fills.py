"""Simulated fills: the cost of a purchase, or the proceeds of a sale, at the prices of a book.

Nothing is executed. All results are exact. `OrderBook.buy` and `OrderBook.sell` are the public interface.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil
from operator import mul
from typing import Any, Final, Literal, TypeAlias, final

from attrs import frozen

from market_index.depth import totals, up_to
from market_index.errors import InvalidPrice, safe_repr
from market_index.levels import Levels, by_price, require_amount
from market_index.prices import (
    EXACT,
    MAX_DECIMAL_PLACES,
    Side,
    plain,
    price_for_takers,
    to_price,
    to_price_or_ratio,
    to_ratio,
)
from market_index.value import Value

Unit: TypeAlias = Literal["base", "quote"]
"""The unit of an amount: the smallest unit of the base asset, or of the quote asset."""

FIGURES: Final = ("filled", "paid", "total", "average_price", "best_price", "worst_price", "complete")
"""The columns of a simulated fill."""

# Above the value of any book, with so few digits that arithmetic is exact.
_MAX_QUOTE: Final = 10**60

_ONE: Final = Decimal(1)
_SCALE: Final = 10**MAX_DECIMAL_PLACES


@final
@frozen(getstate_setstate=False)
class SimulatedFill(Value):
    """The result of `OrderBook.buy` and `OrderBook.sell`: the trade that an amount would make.

    `filled` is what is bought or sold: a whole number in the smallest unit of the base asset. `paid` is its exact value
    in the smallest unit of the quote asset, so it may have decimals. `total` is the cost with the fee, or the proceeds
    without it. A ledger has only whole units: round a cost up and proceeds down.

    `levels` are the levels taken, best price first; the last one may be taken in part. `complete` is whether the book
    had enough for the amount.
    """

    filled: int
    paid: Decimal
    total: Decimal
    levels: Levels
    complete: bool

    @property
    def average_price(self) -> Decimal | None:
        """`paid` per `filled`, rounded up for a purchase and down for a sale; None if nothing is filled."""
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

    def slippage(self, reference: Decimal | Fraction | str | None) -> Decimal | None:
        """Return by which share the average price is worse than a reference; negative if it is better.

        The reference is `fill.best_price`, `book.mid`, or another price, in smallest units. The share is before the
        fee, and is rounded up to 28 decimal places. It is None if nothing is filled, or if the reference is None: a
        book without bids has no midpoint.

        >>> from market_index import ADA, AssetId, OrderBook, Pair
        >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
        >>> book = OrderBook.from_levels(pair, bids=[("0.4", 1)], asks=[("0.5", 100), ("0.7", 100)])
        >>> purchase = book.buy(200)
        >>> purchase.slippage(purchase.best_price), f"{purchase.slippage(book.mid):.2%}"
        (Decimal('0.2'), '33.33%')

        Raises:
            InvalidPrice: The reference is not a number in the range of prices.
        """
        if reference is None or not self.filled:
            return None
        price = Fraction(to_price_or_ratio(to_ratio(reference, "the reference")))
        share = Fraction(self.paid) / self.filled / price - 1
        if self.levels.side is Side.BID:
            share = -share
        return plain(EXACT.scaleb(Decimal(ceil(share * _SCALE)), -MAX_DECIMAL_PLACES))


def simulate_fill(
    levels: Levels, amount: int, unit: Unit, limit: Decimal | str | None, fee: Decimal | str | None
) -> SimulatedFill:
    """Return the simulated fill of an amount. See `OrderBook.buy` for the arguments and the errors."""
    require_amount("amount", amount, is_bounded=False)
    if unit not in ("base", "quote"):
        raise ValueError(f"unit must be 'base' or 'quote', got {safe_repr(unit)}")
    if limit is not None:
        levels = up_to(levels, to_price(limit, "the limit"))
    # What one unit of the quote asset costs or brings.
    factor = _ONE
    if fee is not None:
        share = to_price(fee, "the fee")
        if share >= _ONE:
            raise InvalidPrice(f"the fee must be below 1, got {safe_repr(fee)}; '0.003' is 0.3 %")
        factor = levels.side.worse_by(share, _ONE)
    taken, complete = _taken(levels, amount, unit, factor)
    filled, paid = totals(taken)
    total = paid if factor is _ONE else plain(EXACT.multiply(paid, factor))
    return SimulatedFill(filled, paid, total, taken, complete)


def _taken(levels: Levels, amount: int, unit: Unit, factor: Decimal) -> tuple[Levels, bool]:
    """Return the levels that an amount takes, and whether there is enough in them."""
    is_base, taken = unit == "base", by_price(levels)
    left: int | Decimal = amount if is_base else Decimal(min(amount, _MAX_QUOTE))
    with localcontext(EXACT):
        prices = taken.keys() if factor is _ONE else map(factor.__mul__, taken.keys())
        for count, value in enumerate(taken.values() if is_base else map(mul, prices, taken.values())):
            if left < value:
                # Whole base units: a purchase takes fewer, a sale takes more.
                rest = left if is_base else levels.side.opposite.rounded(*divmod(left, levels[count].price * factor))
                return _cut(levels, count, int(rest)), True
            left -= value
    return levels, not left


def _cut(levels: Levels, count: int, amount: int) -> Levels:
    """Return the best `count` levels, and the next one with this amount."""
    if not amount:
        return levels.depth(count)
    taken = levels.depth(count + 1)
    return taken.applied([(taken[-1].price, amount)])
