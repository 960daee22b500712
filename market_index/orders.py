"""Orders: what the levels of a book are gathered from."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import final

from attrs import field, frozen

from market_index.assets import AssetId
from market_index.errors import InvalidOrderBook, InvalidPrice, safe_repr
from market_index.levels import MAX_LIQUIDITY, Side, price_for_takers, reject_amount, require_amount
from market_index.pairs import Pair, require_trackable
from market_index.prices import to_price_or_ratio, to_ratio


def _price_repr(price: Decimal | Fraction) -> str:
    try:
        return repr(price)
    except ValueError:
        # Python converts no integer of more than 4,300 digits to text.
        return safe_repr(price)


@final
@frozen(init=False, weakref_slot=False)
class Order:
    """One order: its pair, its side, its price, and the amount of the base asset that remains.

    The price is in quote units per one base unit. The amount is in the smallest unit of the base asset, from 0 (it adds
    nothing to a book) to 2^64-1. An order on the ledger offers one asset and asks for another: `from_offer` converts
    both numbers.

    On the ledger a price is often a numerator and a denominator, with no finite decimal: a `Fraction` from 10^-28 to
    2^96-1 is a price too. It is kept as it is, except one that equals a price exactly, which becomes that `Decimal`.

    >>> from market_index import ADA
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> Order(pair, Side.ASK, "0.25", 40).price
    Decimal('0.25')
    >>> Order(pair, Side.ASK, Fraction(1, 3), 40).level_price
    Decimal('0.3333333333333333333333333334')

    Raises `InvalidPrice`, and `InvalidOrderBook` for the pair, the side and the amount.
    """

    pair: Pair
    side: Side
    price: Decimal | Fraction = field(repr=_price_repr)
    amount: int

    def __init__(self, pair: Pair, side: Side, price: Decimal | Fraction | str, amount: int) -> None:
        require_trackable(pair)
        if type(side) is not Side:
            raise InvalidOrderBook(f"side must be Side.BID or Side.ASK, got {safe_repr(side)}")
        price = to_price_or_ratio(price)
        require_amount("amount", amount)
        self.__attrs_init__(pair, side, price, amount)

    @classmethod
    def from_offer(cls, pair: Pair, *, offered: AssetId, amount: int, price: Decimal | Fraction | str) -> Order:
        """Return the order that offers an amount of one asset of a pair, and asks for the other (decision 22).

        `amount` is in the smallest unit of the offered asset. `price` is how much is asked per unit offered; as text it
        is a decimal or a ratio such as `"7/29000"`. Offering the base asset is an ask: both numbers stay as they are.
        Offering the quote asset is a bid: its price is the inverse, and its amount is the base units that the offer
        pays for at that price, rounded down. An amount above 2^64-1 becomes 2^64-1: a book may show less than is
        offered, but never more.

        >>> from market_index import ADA
        >>> snek = AssetId(bytes(28), b"SNEK")
        >>> Order.from_offer(Pair(snek, ADA), offered=snek, amount=500, price="1/3").price
        Fraction(1, 3)
        >>> bid = Order.from_offer(Pair(snek, ADA), offered=ADA, amount=500, price="3")
        >>> bid.side, bid.price, bid.amount
        (<Side.BID: 'bid'>, Fraction(1, 3), 1500)

        Raises `InvalidPrice`, also if the order's price in the pair is below 10^-28 or above 2^96-1, and
        `InvalidOrderBook` for a pair, an asset or an amount that an offer cannot have.
        """
        require_trackable(pair)
        if type(amount) is not int or amount < 0:
            reject_amount("amount", amount, "of 0 or more")
        ratio = to_ratio(price)
        if type(offered) is AssetId and offered == pair.base:
            side, place = Side.ASK, "price"
        elif type(offered) is AssetId and offered == pair.quote:
            side, place = Side.BID, "price, inverted for a bid"
            # By the ratio itself, before any rounding.
            amount = amount * ratio.numerator // ratio.denominator
            ratio = 1 / ratio
        else:
            raise InvalidOrderBook(f"offered must be the base or the quote of {pair}, got {safe_repr(offered)}")
        try:
            return cls(pair, side, ratio, min(amount, MAX_LIQUIDITY))
        except InvalidPrice as error:
            raise error.at(place) from None

    @property
    def level_price(self) -> Decimal:
        """The price of the order's level: its own, or the nearest price that is no better for a taker.

        A bid is rounded down and an ask up, so that a book never shows a taker more than the order gives. The error is
        below 10^-28 for a price below 7, and below 1.3 * 10^-28 of the price above that.
        """
        price = self.price
        return price if isinstance(price, Decimal) else price_for_takers(self.side, price)
