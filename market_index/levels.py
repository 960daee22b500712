"""Price levels, and the two sides of a book on which they stand."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from enum import Enum
from fractions import Fraction
from itertools import repeat
from operator import attrgetter
from typing import Final, NoReturn, TypeAlias, TypeVar, final

from attrs import fields, frozen

from market_index.errors import InvalidOrderBook, MarketIndexError, safe_repr
from market_index.prices import is_canonical, price_text, rounded_price, to_price

MAX_LIQUIDITY: Final = 2**64 - 1
"""The most liquidity that an order or a level can have, in the smallest unit of the base asset (decision 1)."""


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
            refuse_amount("accumulated_liquidity", accumulated_liquidity, least=1)
        self.__attrs_init__(price, accumulated_liquidity)


Entry: TypeAlias = PriceLevel | tuple[Decimal | str, int]
"""What is gathered into levels, or changes them: a level, or a price and an amount."""

Levels: TypeAlias = tuple[PriceLevel, ...]
"""One side of a book, best price first."""

_T = TypeVar("_T")

# A frozen class refuses to be set but through its slots; they are the quickest way too, and there are thousands.
_new: Final = object.__new__
PRICE_OF: Final = attrgetter("price")
LIQUIDITY_OF: Final = attrgetter("accumulated_liquidity")
_set_price: Final = PriceLevel.__dict__["price"].__set__
_set_liquidity: Final = PriceLevel.__dict__["accumulated_liquidity"].__set__


def trusted_level(price: Decimal, accumulated_liquidity: int) -> PriceLevel:
    """Return a level of values that were checked already: the price by `prices`, the liquidity by `is_liquidity`."""
    level = _new(PriceLevel)
    _set_price(level, price)
    _set_liquidity(level, accumulated_liquidity)
    return level


def rows(of_type: type[_T], count: int, *columns: Iterable[object]) -> tuple[_T, ...]:
    """Return so many objects of an attrs class, made of a column of values a field that were checked already."""
    made = tuple(map(_new, repeat(of_type, count)))
    for field, column in zip(fields(of_type), columns, strict=True):  # type: ignore[arg-type]  # it is an attrs class
        # A deque that holds nothing runs through a map without a step of the interpreter.
        deque(map(of_type.__dict__[field.name].__set__, made, column), maxlen=0)
    return made


class Columns:
    """The levels of one side, best price first, as two columns of values that were checked already.

    They take a third less than the levels do, which are laid out when somebody looks at them, for all books that share
    these columns. Nothing here is ever changed, or given to anybody who could.
    """

    __slots__ = ("_levels", "liquidities", "prices")

    def __init__(self, prices: tuple[Decimal, ...], liquidities: array[int], levels: Levels | None = None) -> None:
        self.prices = prices
        self.liquidities = liquidities
        self._levels = levels

    @classmethod
    def of(cls, levels: Levels) -> Columns:
        """Return these levels in columns."""
        return cls(tuple(map(PRICE_OF, levels)), array("Q", map(LIQUIDITY_OF, levels)), levels)

    @property
    def levels(self) -> Levels:
        """The levels themselves."""
        if self._levels is None:
            self._levels = rows(PriceLevel, len(self.prices), self.prices, self.liquidities)
        return self._levels

    def best(self, count: int) -> Levels:
        """Return the best `count` levels, or all where there are no more, without laying out the others."""
        if self._levels is not None or count >= len(self.prices):
            return self.levels[:count]
        return tuple(map(trusted_level, self.prices[:count], self.liquidities[:count]))


def is_liquidity(value: object) -> bool:
    """Whether `value` is what a level can hold: an int, not a bool, from 1 to 2^64-1."""
    return type(value) is int and 0 < value <= MAX_LIQUIDITY


def require_amount(name: str, value: object) -> None:
    """Refuse what is no amount of an order or a change: an int, not a bool, from 0 to 2^64-1."""
    if type(value) is not int or not 0 <= value <= MAX_LIQUIDITY:
        refuse_amount(name, value)


def refuse_total(side: Side, price: Decimal, total: int) -> NoReturn:
    """Raise the `InvalidOrderBook` that names the price at which there is more than a level can hold (decision 13)."""
    raise InvalidOrderBook(f"the {side.value}s at {price_text(price)} come to {total}, which is above 2^64-1")


def price_for_takers(side: Side, ratio: Fraction) -> Decimal:
    """Return the price nearest to a ratio that is no better for a taker: of bids rounded down, of asks up.

    Raises `InvalidPrice` for a ratio below 10^-28 or above 2^96-1.
    """
    return rounded_price(ratio, ROUND_FLOOR if side is Side.BID else ROUND_CEILING)


def refuse_amount(name: str, value: object, least: int = 0) -> NoReturn:
    """Raise the `InvalidOrderBook` that names what is no liquidity or no amount."""
    given = safe_repr(value) if type(value) is int else f"a {type(value).__name__}: {safe_repr(value)}"
    raise InvalidOrderBook(f"{name} must be a whole number (int) from {least} to 2^64-1, not {given}")


def read_entry(side: Side, position: int, entry: Entry) -> tuple[Decimal, int]:
    """Return price and amount of an entry, checked.

    Raises `InvalidOrderBook` and `InvalidPrice` that name the place, such as `bids[3]`.
    """
    if type(entry) is not tuple or len(entry) != 2:
        if type(entry) is PriceLevel:
            return entry.price, entry.accumulated_liquidity
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise InvalidOrderBook(
                f"{side.value}s[{position}] must be a PriceLevel or (price, amount), not {safe_repr(entry)}"
            )
    price, amount = entry
    if type(price) is str and type(amount) is int and 0 <= amount <= MAX_LIQUIDITY and is_canonical(price):
        return Decimal(price), amount
    try:
        price = to_price(price)
        require_amount("the amount", amount)
    except MarketIndexError as error:
        raise error.at(f"{side.value}s[{position}]") from None
    return price, amount
