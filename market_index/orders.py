"""Single orders, from which the levels of a book are gathered.

An order on the ledger offers one asset and asks for another; `Order` states it as a bid or an ask of a pair.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, final

from attrs import field, frozen

from market_index.assets import AssetId
from market_index.errors import InvalidOrderBook, InvalidPrice, safe_repr
from market_index.levels import MAX_LIQUIDITY, require_amount
from market_index.pairs import Pair, require_trackable
from market_index.prices import Side, price_for_takers, require_side, to_price_or_ratio, to_ratio
from market_index.value import Value, slot_setters


def _price_argument(price: Decimal | Fraction | str) -> Any:
    """Return the argument unchanged, as `price_argument` does."""
    return price


@final
@frozen(weakref_slot=False, getstate_setstate=False)
class Order(Value):
    """An order: its pair, side, price, and remaining amount of the base asset.

    The price is in quote units per one base unit, both in smallest units. The amount is in the smallest unit of the
    base asset, from 0 (which adds nothing to a book) to 2^64-1. `from_offer` converts the numbers of an offer on the
    ledger.

    Prices on the ledger are often a numerator and a denominator without a finite decimal, so a `Fraction` from 10^-28
    to 2^96-1 is accepted too. If it equals a price exactly, it becomes that `Decimal`. Compute with `level_price`,
    which is always a `Decimal`.

    >>> from market_index import ADA
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> Order(pair, Side.ASK, "0.25", 40).price
    Decimal('0.25')
    >>> Order(pair, Side.ASK, Fraction(1, 3), 40).level_price
    Decimal('0.3333333333333333333333333334')

    Raises:
        InvalidOrderBook: The pair, the side or the amount is invalid.
        InvalidPrice: The price is not a price, or its ratio is out of range.
    """

    pair: Pair
    side: Side
    price: Decimal | Fraction = field(converter=_price_argument)
    amount: int

    def __attrs_post_init__(self) -> None:
        require_trackable(self.pair)
        require_side(self.side)
        _SET_PRICE(self, to_price_or_ratio(self.price))
        require_amount("amount", self.amount)

    @staticmethod
    def from_offer(pair: Pair, *, offered: AssetId, amount: int, price: Decimal | Fraction | str) -> Order:
        """Return the order of an offer of one asset of a pair for the other (decision 22).

        An offer of the base asset is an ask with the same amount and price. An offer of the quote asset is a bid: its
        price is the inverse, and its amount is the base units that the offer pays for at that price, rounded down. An
        amount above 2^64-1 becomes 2^64-1, because a book may show less than is offered, but never more.

        Args:
            pair: The pair whose book the order belongs to.
            offered: The asset that is offered: the base or the quote of the pair.
            amount: How much is offered, in the smallest unit of the offered asset.
            price: How much of the other asset is asked per unit offered; as text, a decimal or a ratio (`"7/29000"`).

        >>> from market_index import ADA
        >>> snek = AssetId(bytes(28), b"SNEK")
        >>> Order.from_offer(Pair(snek, ADA), offered=snek, amount=500, price="1/3").price
        Fraction(1, 3)
        >>> bid = Order.from_offer(Pair(snek, ADA), offered=ADA, amount=500, price="3")
        >>> bid.side, bid.price, bid.amount
        (Side.BID, Fraction(1, 3), 1500)

        Raises:
            InvalidOrderBook: The pair cannot be tracked or lacks the asset, or the amount is not an int of 0 or more.
            PriceOutOfRange: `price` is not above 0, has more than 600 digits, or becomes a price of the pair that is
                below 10^-28 or above 2^96-1.
            InvalidPrice: `price` is not a ratio.
        """
        require_trackable(pair)
        require_amount("amount", amount, is_bounded=False)
        ratio = to_ratio(price)
        if type(offered) is AssetId and offered == pair.base:
            side, place = Side.ASK, "price"
        elif type(offered) is AssetId and offered == pair.quote:
            side, place = Side.BID, "price, inverted for a bid"
            # Computed before the ratio is rounded.
            amount = amount * ratio.numerator // ratio.denominator
            ratio = Fraction(ratio.denominator, ratio.numerator)
        else:
            raise InvalidOrderBook(f"offered must be the base or the quote of {pair}, got {safe_repr(offered)}")
        try:
            return Order(pair, side, ratio, min(amount, MAX_LIQUIDITY))
        except InvalidPrice as error:
            raise error.at(place) from None

    @property
    def level_price(self) -> Decimal:
        """The price of the order's level: its own price, rounded so that it is no better for a taker (decision 22).

        Bids are rounded down and asks up, so a book never shows better terms than the order has. The rounding error is
        below 10^-28 for a price below 7, and below 1.3 * 10^-28 of the price otherwise.
        """
        price = self.price
        return price if isinstance(price, Decimal) else price_for_takers(self.side, price)


(_SET_PRICE,) = slot_setters(Order, "price")
