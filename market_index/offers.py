"""The orders of many offers, computed as columns.

`Order.from_offer` states the rules. For the usual prices the columns have the same result, in half the time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import compress
from operator import eq
from typing import Final

from market_index.arithmetic import EXACT
from market_index.levels import BID, MAX_LIQUIDITY, Side
from market_index.orders import Order
from market_index.pairs import Pair
from market_index.prices import PLAIN_RATIO, are_canonical, divide, price_or_ratio
from market_index.unchecked import unchecked_rows

__all__ = ["orders_of_offers"]

_ARE_PLAIN: Final = re.compile(f"(?:{PLAIN_RATIO} )*+").fullmatch


def orders_of_offers(
    pairs: Sequence[Pair], sides: Sequence[Side], amounts: Sequence[int], prices: Sequence[str]
) -> list[Order] | None:
    """Return the order of each offer, as `Order.from_offer` does; None if a price is not a ratio of short integers.

    An offer of the base asset is an ask. The pairs must be trackable, and the amounts 0 or more: they are not
    validated.

    >>> from market_index import ADA, AssetId
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> [bid] = orders_of_offers([pair], [Side.BID], [500], ["3/1"])
    >>> bid == Order.from_offer(pair, offered=ADA, amount=500, price="3")
    True
    >>> orders_of_offers([pair], [Side.BID], [500], ["0/1"]) is None
    True
    """
    column = " ".join(prices)
    if column.count(" ") != len(prices) - 1 or not _ARE_PLAIN(f"{column} "):
        return None
    numbers = list(map(int, column.replace("/", " ").split(" ")))
    asked, offered = numbers[::2], numbers[1::2]
    are_bids = [side is BID for side in sides]
    if any(are_bids):
        amounts = [
            amount * above // below if is_bid else amount
            for is_bid, amount, above, below in zip(are_bids, amounts, asked, offered, strict=True)
        ]
        # The price of a bid is the inverse.
        asked, offered = (
            [below if is_bid else above for is_bid, above, below in zip(are_bids, asked, offered, strict=True)],
            [above if is_bid else below for is_bid, above, below in zip(are_bids, asked, offered, strict=True)],
        )
    if max(amounts) > MAX_LIQUIDITY:
        amounts = [min(amount, MAX_LIQUIDITY) for amount in amounts]
    return unchecked_rows(Order, len(prices), pairs, sides, _prices(asked, offered), amounts)


def _prices(numerators: list[int], denominators: list[int]) -> list[Decimal | Fraction]:
    """Return what `price_or_ratio` returns for each quotient of two numbers of at most 28 digits."""
    dividends, divisors = list(map(Decimal, numerators)), list(map(Decimal, denominators))
    quotients = list(map(divide, dividends, divisors))
    are_exact = list(map(eq, map(EXACT.multiply, quotients, divisors), dividends))
    if are_canonical(list(map(EXACT.to_sci_string, compress(quotients, are_exact)))):
        return [
            quotient if is_exact else Fraction(numerator, denominator)
            for quotient, is_exact, numerator, denominator in zip(
                quotients, are_exact, numerators, denominators, strict=True
            )
        ]
    return list(map(price_or_ratio, numerators, denominators))
