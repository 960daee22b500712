"""Orders: what the levels of a book are gathered from."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import final

from attrs import field, frozen

from market_index.errors import InvalidOrderBook, safe_repr
from market_index.levels import Side, price_for_takers, require_amount
from market_index.prices import to_price_or_ratio


def _price_repr(price: Decimal | Fraction) -> str:
    try:
        return repr(price)
    except ValueError:
        # Python converts no integer of more than 4,300 digits to text.
        return safe_repr(price)


@final
@frozen(init=False, weakref_slot=False)
class Order:
    """One order: its side, its price, and the amount of the base asset that remains.

    The price is in quote units per one base unit. The amount is in the smallest unit of the base asset, from 0 (it adds
    nothing to a book) to 2^64-1.

    On the ledger a price is often a numerator and a denominator, with no finite decimal: a `Fraction` from 10^-28 to
    2^96-1 is a price too. It is kept as it is, except one that equals a price exactly, which becomes that `Decimal`.

    >>> Order(Side.ASK, "0.25", 40).price
    Decimal('0.25')
    >>> Order(Side.ASK, Fraction(1, 3), 40).level_price
    Decimal('0.3333333333333333333333333334')

    Raises `InvalidPrice`, and `InvalidOrderBook` for the side and the amount.
    """

    side: Side
    price: Decimal | Fraction = field(repr=_price_repr)
    amount: int

    def __init__(self, side: Side, price: Decimal | Fraction | str, amount: int) -> None:
        if type(side) is not Side:
            raise InvalidOrderBook(f"side must be Side.BID or Side.ASK, got {safe_repr(side)}")
        price = to_price_or_ratio(price)
        require_amount("amount", amount)
        self.__attrs_init__(side, price, amount)

    @property
    def level_price(self) -> Decimal:
        """The price of the order's level: its own, or the nearest price that is no better for a taker.

        A bid is rounded down and an ask up, so that a book never shows a taker more than the order gives. The error is
        below 10^-28 for a price below 7, and below 1.3 * 10^-28 of the price above that.
        """
        price = self.price
        return price if isinstance(price, Decimal) else price_for_takers(self.side, price)
