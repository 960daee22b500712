"""Order books: price levels in order, gathered from anything, and the next book derived from the last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation
from enum import Enum
from operator import gt, itemgetter, lt
from types import EllipsisType
from typing import Final, NoReturn, TypeAlias, final

from attrs import frozen

from market_index.errors import InvalidOrderBook, MarketIndexError, shown
from market_index.pairs import Pair
from market_index.prices import price_text, to_price

MAX_LIQUIDITY: Final = 2**64 - 1
"""The most liquidity that an order or a level can have, in the smallest unit of the base asset (decision 1)."""

# Twice the digits of a price hold a sum or a difference of two whole, and half of it.
_EXACT: Final = Context(
    prec=96,
    rounding=ROUND_HALF_EVEN,
    Emin=-999,
    Emax=999,
    capitals=1,
    clamp=0,
    flags=[],
    traps=[Inexact, InvalidOperation],
)
_HALF: Final = Decimal("0.5")

_PRICE_FIRST: Final = itemgetter(0)


class Side(Enum):
    """A side of the book: `BID` buys the base asset, `ASK` sells it."""

    BID = "bid"
    ASK = "ask"


@final
@frozen(init=False, weakref_slot=False)
class PriceLevel:
    """The liquidity that rests at exactly one price.

    `price` is in quote units per one base unit, both in smallest units. `accumulated_liquidity` is the total at this
    price alone, not a running sum, in the smallest unit of the base asset: a whole number from 1 to 2^64-1
    (decision 1).

    >>> PriceLevel("0.10", 5_000_000)
    PriceLevel(price=Decimal('0.1'), accumulated_liquidity=5000000)

    Raises `InvalidPrice`, and `InvalidOrderBook` for the liquidity.
    """

    price: Decimal
    accumulated_liquidity: int

    def __init__(self, price: Decimal | str, accumulated_liquidity: int) -> None:
        price = to_price(price)
        if not is_liquidity(accumulated_liquidity):
            _refuse_amount("accumulated_liquidity", accumulated_liquidity, least=1)
        self.__attrs_init__(price, accumulated_liquidity)


@final
@frozen(init=False, weakref_slot=False)
class Order:
    """One resting order: its side, its price, and the amount of the base asset that is left of it.

    The price is in quote units per one base unit, the amount in the smallest unit of the base asset, from 0 (nothing
    left: it adds nothing to a book) to 2^64-1.

    >>> Order(Side.ASK, "0.25", 40).price
    Decimal('0.25')

    Raises `InvalidPrice`, and `InvalidOrderBook` for the side and the amount.
    """

    side: Side
    price: Decimal
    amount: int

    def __init__(self, side: Side, price: Decimal | str, amount: int) -> None:
        if type(side) is not Side:
            raise InvalidOrderBook(f"side must be Side.BID or Side.ASK, not {shown(side)}")
        self.__attrs_init__(side, to_price(price), _amount("amount", amount))


Entry: TypeAlias = PriceLevel | tuple[Decimal | str, int]
"""What is gathered into levels, or changes them: a level, or a price and an amount."""

Levels: TypeAlias = tuple[PriceLevel, ...]
"""One side of a book."""


@final
@frozen(init=False)
class OrderBook:
    """The order book of one pair at one moment: bids highest price first, asks lowest first, and the spot price.

    The constructor takes only what is in that order already, in tuples, one level a price; `from_levels` and
    `from_orders` gather anything into it, and `apply` derives the next book. `spot` is the last executed price, or
    None. A book may be locked or crossed (decision 15): it reports, it does not match orders.

    >>> from market_index import ADA, AssetId
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> book = OrderBook.from_levels(pair, bids=[("2", 10), ("3", 5), ("2.0", 1)], asks=[("4", 7)], spot="3.5")
    >>> [(str(level.price), level.accumulated_liquidity) for level in book.bids]
    [('3', 5), ('2', 11)]
    >>> book.spread, book.mid
    (Decimal('1'), Decimal('3.5'))

    Raises `InvalidOrderBook`, naming the place, and `InvalidPrice` for the spot price.
    """

    pair: Pair
    bids: Levels
    asks: Levels
    spot: Decimal | None

    def __init__(self, pair: Pair, bids: Levels = (), asks: Levels = (), spot: Decimal | str | None = None) -> None:
        _require_order("bids", bids, "below", lt)
        _require_order("asks", asks, "above", gt)
        self.__attrs_init__(_tracked(pair), bids, asks, _spot(spot))

    @classmethod
    def from_levels(
        cls,
        pair: Pair,
        bids: Iterable[Entry] = (),
        asks: Iterable[Entry] = (),
        spot: Decimal | str | None = None,
    ) -> OrderBook:
        """Gather levels, or (price, amount) pairs, in any order: repeats are summed, zero amounts dropped.

        Raises `InvalidOrderBook` (a sum above 2^64-1 among others) and `InvalidPrice`, naming the place.
        """
        return _book(
            _tracked(pair),
            _gathered(Side.BID, _entries("bids", bids)),
            _gathered(Side.ASK, _entries("asks", asks)),
            _spot(spot),
        )

    @classmethod
    def from_orders(cls, pair: Pair, orders: Iterable[Order], spot: Decimal | str | None = None) -> OrderBook:
        """Gather orders, in any order, into levels: those at one price are summed, those of zero dropped.

        >>> from market_index import ADA, AssetId
        >>> orders = [Order(Side.BID, "0.5", 2), Order(Side.BID, "0.50", 3)]
        >>> OrderBook.from_orders(Pair(ADA, AssetId(bytes(28), b"")), orders).bids
        (PriceLevel(price=Decimal('0.5'), accumulated_liquidity=5),)

        Raises `InvalidOrderBook`, naming the place or, where a sum is above 2^64-1, the price.
        """
        entries: dict[Side, list[tuple[Decimal, int]]] = {Side.BID: [], Side.ASK: []}
        for position, order in enumerate(orders):
            if type(order) is not Order:
                raise InvalidOrderBook(f"orders[{position}] must be an Order, not {shown(order)}")
            entries[order.side].append((order.price, order.amount))
        return _book(
            _tracked(pair),
            _gathered(Side.BID, entries[Side.BID]),
            _gathered(Side.ASK, entries[Side.ASK]),
            _spot(spot),
        )

    def apply(
        self,
        bids: Iterable[Entry] = (),
        asks: Iterable[Entry] = (),
        spot: Decimal | str | EllipsisType | None = ...,
    ) -> OrderBook:
        """Return the next book: level changes with absolute amounts, where 0 removes the level.

        Bids, asks and spot change together. Of several changes at one price the last one holds; removing what is
        not there is fine. `spot` stays as it is unless it is given. What did not change is shared with this book.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(ADA, AssetId(bytes(28), b"")), bids=[("2", 10), ("1", 5)])
        >>> book.apply(bids=[("2", 0), ("1", 6)], spot="2").bids
        (PriceLevel(price=Decimal('1'), accumulated_liquidity=6),)

        Raises `InvalidOrderBook` and `InvalidPrice`, naming the place; this book is as it was.
        """
        return _book(
            self.pair,
            _changed(Side.BID, self.bids, _entries("bids", bids)),
            _changed(Side.ASK, self.asks, _entries("asks", asks)),
            self.spot if isinstance(spot, EllipsisType) else _spot(spot),
        )

    @property
    def best_bid(self) -> PriceLevel | None:
        """The bid of the highest price, or None where nobody bids."""
        return self.bids[0] if self.bids else None

    @property
    def best_ask(self) -> PriceLevel | None:
        """The ask of the lowest price, or None where nobody asks."""
        return self.asks[0] if self.asks else None

    @property
    def spread(self) -> Decimal | None:
        """Best ask less best bid, exactly: zero when locked, negative when crossed, None where a side is empty."""
        if not self.bids or not self.asks:
            return None
        return _plain(_EXACT.subtract(self.asks[0].price, self.bids[0].price))

    @property
    def mid(self) -> Decimal | None:
        """The midpoint of best bid and best ask, exactly, or None where a side is empty.

        It can have one decimal place more than a price may have.
        """
        if not self.bids or not self.asks:
            return None
        return _plain(_EXACT.multiply(_EXACT.add(self.bids[0].price, self.asks[0].price), _HALF))

    @property
    def is_locked(self) -> bool:
        """Whether best bid and best ask have the same price."""
        return bool(self.bids and self.asks) and self.bids[0].price == self.asks[0].price

    @property
    def is_crossed(self) -> bool:
        """Whether the best bid is above the best ask."""
        return bool(self.bids and self.asks) and self.bids[0].price > self.asks[0].price

    def depth(self, levels: int) -> OrderBook:
        """Return the book cut to its best `levels` price levels a side.

        Raises `ValueError` for a negative number, `TypeError` for what is no whole number.
        """
        if type(levels) is not int:
            raise TypeError(f"levels must be an int, not {shown(levels)}")
        if levels < 0:
            raise ValueError(f"levels must be 0 or more, not {levels}")
        if levels >= len(self.bids) and levels >= len(self.asks):
            return self
        return _book(self.pair, self.bids[:levels], self.asks[:levels], self.spot)


def trusted_level(price: Decimal, accumulated_liquidity: int) -> PriceLevel:
    """Return a level of values that were checked already: the price by `prices`, the liquidity by `is_liquidity`."""
    level = PriceLevel.__new__(PriceLevel)
    level.__attrs_init__(price, accumulated_liquidity)
    return level


def is_liquidity(value: object) -> bool:
    """Whether `value` is what a level can hold: an int, not a bool, from 1 to 2^64-1."""
    return type(value) is int and 0 < value <= MAX_LIQUIDITY


def _book(pair: Pair, bids: Levels, asks: Levels, spot: Decimal | None) -> OrderBook:
    """Return a book of values that were checked already."""
    book = OrderBook.__new__(OrderBook)
    book.__attrs_init__(pair, bids, asks, spot)
    return book


def _tracked(pair: Pair) -> Pair:
    if type(pair) is not Pair:
        raise InvalidOrderBook(f"pair must be a Pair, not {type(pair).__name__}: {shown(pair)}")
    if pair.base == pair.quote:
        raise InvalidOrderBook(f"base and quote are the same asset: {shown(str(pair.base))}")
    return pair


def _spot(spot: Decimal | str | None) -> Decimal | None:
    try:
        return None if spot is None else to_price(spot)
    except MarketIndexError as error:
        raise error.at("spot") from None


def _amount(name: str, value: object) -> int:
    """Return `value` where it is an amount: an int, not a bool, from 0 to 2^64-1."""
    if type(value) is not int or not 0 <= value <= MAX_LIQUIDITY:
        _refuse_amount(name, value)
    return value


def _refuse_amount(name: str, value: object, least: int = 0) -> NoReturn:
    given = shown(value) if type(value) is int else f"a {type(value).__name__}: {shown(value)}"
    raise InvalidOrderBook(f"{name} must be a whole number (int) from {least} to 2^64-1, not {given}")


def _require_order(side: str, levels: object, word: str, follows: Callable[[Decimal, Decimal], bool]) -> None:
    """Refuse whatever is not a tuple of levels, each with a price that `follows` the one before it."""
    if type(levels) is not tuple:
        raise InvalidOrderBook(
            f"{side} must be a tuple of PriceLevel, not {type(levels).__name__}; "
            "OrderBook.from_levels gathers any iterable"
        )
    before: Decimal | None = None
    for position, level in enumerate(levels):
        if type(level) is not PriceLevel:
            raise InvalidOrderBook(f"{side}[{position}] must be a PriceLevel, not {shown(level)}")
        if before is not None and not follows(level.price, before):
            raise InvalidOrderBook(
                f"{side}[{position}].price: {price_text(level.price)} does not stand {word} "
                f"{side}[{position - 1}].price, {price_text(before)}"
            )
        before = level.price


def _entries(side: str, entries: Iterable[Entry]) -> Iterable[tuple[Decimal, int]]:
    """Yield price and amount of each entry, checked, the place in the error of one that is not good."""
    for position, entry in enumerate(entries):
        if type(entry) is PriceLevel:
            yield entry.price, entry.accumulated_liquidity
            continue
        place = f"{side}[{position}]"
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise InvalidOrderBook(f"{place} must be a PriceLevel or (price, amount), not {shown(entry)}")
        price, amount = entry
        try:
            yield to_price(price), _amount("the amount", amount)
        except MarketIndexError as error:
            raise error.at(place) from None


def _gathered(side: Side, entries: Iterable[tuple[Decimal, int]]) -> Levels:
    """Return the levels of a side: amounts at one price summed, zeros dropped, in the order of the side."""
    # By text: the hash of a number is no secret, so that orders could be priced to collide; that of a text is.
    totals: dict[str, int] = {}
    for price, amount in entries:
        text = str(price)
        totals[text] = totals.get(text, 0) + amount
    levels = []
    for price, total in sorted(
        ((Decimal(text), total) for text, total in totals.items()), key=_PRICE_FIRST, reverse=side is Side.BID
    ):
        if total > MAX_LIQUIDITY:
            raise InvalidOrderBook(f"the {side.value}s at {price_text(price)} come to {total}, which is above 2^64-1")
        if total:
            levels.append(trusted_level(price, total))
    return tuple(levels)


def _changed(side: Side, levels: Levels, changes: Iterable[tuple[Decimal, int]]) -> Levels:
    """Return `levels` with each change made, the very same tuple when there is nothing to change."""
    changed: list[PriceLevel] | None = None
    follows = lt if side is Side.BID else gt
    for price, amount in changes:
        current = levels if changed is None else changed
        position = _position(current, price, follows)
        stands = position < len(current) and current[position].price == price
        if amount == (current[position].accumulated_liquidity if stands else 0):
            continue
        if changed is None:
            changed = list(levels)
        changed[position : position + stands] = [trusted_level(price, amount)] if amount else []
    return levels if changed is None else tuple(changed)


def _position(levels: Levels | list[PriceLevel], price: Decimal, follows: Callable[[Decimal, Decimal], bool]) -> int:
    """Return where in `levels` the level of `price` stands, or would stand."""
    low, high = 0, len(levels)
    while low < high:
        middle = (low + high) // 2
        if follows(price, levels[middle].price):
            low = middle + 1
        else:
            high = middle
    return low


def _plain(number: Decimal) -> Decimal:
    """Return the number without trailing zeros and without a positive exponent, and zero as plain 0."""
    return Decimal(format(number.normalize(_EXACT), "f"))
