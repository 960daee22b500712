"""Price levels, and `Levels`: one side of a book as an immutable sequence of them.

The levels of a side are stored as columns of prices and amounts in chunks. `PriceLevel` objects are created when they
are accessed.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from decimal import Decimal
from itertools import chain, repeat
from operator import attrgetter, gt, itemgetter, lt
from typing import Any, Final, NoReturn, TypeAlias, final, overload

from attrs import field, frozen

from market_index.chunked import Chunk, Chunked, KeyOrder
from market_index.errors import InvalidOrderBook, MarketIndexError, require_iterable, safe_repr
from market_index.notebook import SHOWN_ROWS, html_table
from market_index.prices import EXACT, Side, parse_prices, price_text, require_price, require_side, to_price
from market_index.value import Value, print_call

MAX_LIQUIDITY: Final = 2**64 - 1
"""The maximum liquidity of an order or a level, in the smallest unit of the base asset (decision 1)."""

REPR_LEVELS: Final = 3
"""The number of levels in the `repr` of one side."""

PRINTED_LEVELS: Final = 200
"""The number of levels of one side that IPython and Hypothesis print."""


@final
@frozen(weakref_slot=False)
class PriceLevel(Value):
    """The liquidity at exactly one price.

    `price` is in quote units per one base unit, both in smallest units. `accumulated_liquidity` is the total at this
    price alone, not a running sum, in the smallest unit of the base asset: a whole number from 1 to 2^64-1
    (decision 1).

    >>> PriceLevel("0.10", 5_000_000)
    PriceLevel(price=Decimal('0.1'), accumulated_liquidity=5000000)

    Raises:
        InvalidPrice: `price` is not a price.
        InvalidOrderBook: `accumulated_liquidity` is not an int from 1 to 2^64-1.
    """

    price: Decimal = field(converter=to_price)
    accumulated_liquidity: int

    def __attrs_post_init__(self) -> None:
        require_price(self.price)
        if type(self.accumulated_liquidity) is not int or not 0 < self.accumulated_liquidity <= MAX_LIQUIDITY:
            reject_amount("accumulated_liquidity", self.accumulated_liquidity, "from 1 to 2^64-1")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # the signature of IPython
        del cycle
        printer.text(f"PriceLevel({price_text(self.price)!r}, {self.accumulated_liquidity})")


Entry: TypeAlias = PriceLevel | tuple[Decimal | str, int]
"""A level, or a (price, amount) pair, that is gathered into levels or changes them."""

LevelChanges: TypeAlias = tuple[tuple[Decimal, int], ...]
"""Prices, and their absolute amounts, 0 for a removed level."""

LevelsChunk: TypeAlias = Chunk[Decimal, int]
"""Prices and amounts."""

_PRICE: Final = attrgetter("price")
_AMOUNT: Final = attrgetter("accumulated_liquidity")
_SET_PRICE: Final = PriceLevel.__dict__["price"].__set__
_SET_AMOUNT: Final = PriceLevel.__dict__["accumulated_liquidity"].__set__


def _unchecked_levels(prices: list[Decimal], amounts: Iterable[int]) -> list[PriceLevel]:
    """Return the levels of two columns of valid values, without validating them again.

    Most callers look at the best levels after each change, and the constructor takes five times as long.
    """
    levels = list(map(object.__new__, repeat(PriceLevel, len(prices))))
    # A frozen class rejects assignments, but its slots do not. deque(maxlen=0) runs the map at C speed.
    deque(map(_SET_PRICE, levels, prices), maxlen=0)
    deque(map(_SET_AMOUNT, levels, amounts), maxlen=0)
    return levels


# The key of a price in a dict. Hashes of numbers are predictable: an attacker could choose prices that collide.
price_key: Final = EXACT.to_sci_string


def _octets(price: Decimal) -> bytes:
    return price_key(price).encode()


# copy_negate never rounds, unlike a minus sign.
_BID_ORDER: Final[KeyOrder[Decimal, int]] = KeyOrder(_octets, sort_key=Decimal.copy_negate)
_ASK_ORDER: Final[KeyOrder[Decimal, int]] = KeyOrder(_octets)


def _order(side: Side) -> KeyOrder[Decimal, int]:
    return _BID_ORDER if side is Side.BID else _ASK_ORDER


def _by_price(side: Side, levels: Iterable[PriceLevel]) -> Chunked[Decimal, int]:
    """Return the columns of levels in the order of their side; `attrs.evolve` passes the columns of a `Levels`."""
    require_side(side)
    given: object = levels
    if type(given) is Chunked:
        if given.order is _order(side):
            return given
        levels = _unchecked_levels(list(given.keys), given.values)
    entries = tuple(levels)
    for position, level in enumerate(entries):
        if type(level) is not PriceLevel:
            raise InvalidOrderBook(f"{side.value}s[{position}] must be a PriceLevel, got {safe_repr(level)}")
    prices = list(map(_PRICE, entries))
    require_order(side, prices)
    return Chunked.of(_order(side), Chunk(prices, array("Q", map(_AMOUNT, entries))))


@final
@frozen(init=False, repr=False, weakref_slot=False)
class Levels(Value, Sequence[PriceLevel]):
    """One side of a book: an immutable sequence of `PriceLevel`, best price first, one level per price.

    `prices` and `amounts` are its columns. A slice is a tuple of levels. Derived levels share their unchanged chunks.
    `PriceLevel` objects are created at each access.

    >>> asks = Levels(Side.ASK, [PriceLevel("0.5", 7), PriceLevel("0.6", 9)])
    >>> asks[0].price, asks.amounts, len(asks)
    (Decimal('0.5'), (7, 9), 2)

    Raises:
        TypeError: `side` is not a `Side`.
        InvalidOrderBook: An element is not a `PriceLevel`, or prices are out of order; the message names the place.
    """

    side: Side
    """The side of the book."""

    by_price: Chunked[Decimal, int] = field(alias="levels")

    # Not a converter: type checkers know none that takes another field.
    def __init__(self, side: Side, levels: Iterable[PriceLevel] = ()) -> None:
        self.__attrs_init__(side, _by_price(side, levels))

    @property
    def chunks(self) -> list[LevelsChunk]:
        """The chunks, for code that caches a result per chunk. Callers must not change them."""
        return self.by_price.chunks

    @property
    def prices(self) -> tuple[Decimal, ...]:
        """The price of each level."""
        return self.by_price.keys

    @property
    def amounts(self) -> tuple[int, ...]:
        """The accumulated liquidity of each level."""
        return self.by_price.values

    def to_columns(self) -> dict[str, tuple[Any, ...]]:
        """Return the columns by name, such as for `pandas.DataFrame(book.asks.to_columns())`.

        >>> Levels(Side.ASK, [PriceLevel("0.5", 7)]).to_columns()
        {'price': (Decimal('0.5'),), 'accumulated_liquidity': (7,)}
        """
        return {"price": self.prices, "accumulated_liquidity": self.amounts}

    def amount_at(self, price: Decimal | str) -> int:
        """Return the liquidity at exactly this price, 0 if there is no such level.

        Raises:
            InvalidPrice: The value is not a price.
        """
        return self.by_price.at(to_price(price)) or 0

    def head(self, count: int) -> Levels:
        """Return the best `count` levels, or itself if it has no more.

        Raises:
            TypeError: `count` is not an int.
            ValueError: `count` is negative.
        """
        if type(count) is not int:
            raise TypeError(f"the number of levels must be an int, got {safe_repr(count)}")
        if count < 0:
            raise ValueError(f"the number of levels must be 0 or more, got {safe_repr(count)}")
        return self.of(self.by_price.head(count))

    def applied(self, entries: Iterable[Entry]) -> Levels:
        """Return the levels after setting each price to its absolute amount, or itself if nothing changes.

        Raises:
            InvalidOrderBook: An entry or its amount is invalid; the message names the place.
            InvalidPrice: A price is invalid; the message names the place.
        """
        return self.of(self.by_price.changed(read_entries(self.side, entries)))

    def of(self, by_price: Chunked[Decimal, int]) -> Levels:
        """Return the levels of valid columns of this side, or itself if they are its own."""
        if by_price is self.by_price:
            return self
        levels = object.__new__(Levels)
        _SET_SIDE(levels, self.side)
        _SET_BY_PRICE(levels, by_price)
        return levels

    def changes_since(self, earlier: Levels) -> LevelChanges:
        """Return the changes that turn earlier levels into these: prices and absolute amounts, 0 for a removed level.

        They are what `applied` takes. Shared chunks are skipped, so the cost depends on what changed.

        Raises:
            ValueError: The earlier levels are of the other side.
        """
        if earlier.side is not self.side:
            raise ValueError(f"the earlier levels must be {self.side.value}s, got {earlier.side.value}s")
        changed, removed = self.by_price.changes_since(earlier.by_price)
        return (*changed, *[(price, 0) for price, _ in removed])

    def __len__(self) -> int:
        return self.by_price.size

    def __iter__(self) -> Iterator[PriceLevel]:
        return chain.from_iterable([_unchecked_levels(chunk.keys, chunk.values) for chunk in self.chunks])

    @overload
    def __getitem__(self, index: int) -> PriceLevel: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PriceLevel, ...]: ...
    def __getitem__(self, index: int | slice) -> PriceLevel | tuple[PriceLevel, ...]:
        if isinstance(index, slice):
            chosen = range(len(self))[index]
            if not chosen:
                return ()
            front = self.by_price.front(max(chosen.start + 1, chosen.stop))
            # A negative stop is before the first level.
            piece = slice(chosen.start, None if chosen.stop < 0 else chosen.stop, chosen.step)
            return tuple(_unchecked_levels(front.keys[piece], front.values[piece]))
        try:
            position = range(self.by_price.size)[index]
        except TypeError:
            raise TypeError(
                f"the index of a level must be an int or a slice, got {safe_repr(index)}; amount_at takes a price"
            ) from None
        for chunk in self.by_price.chunks:
            if position < len(chunk.keys):
                break
            position -= len(chunk.keys)
        level = object.__new__(PriceLevel)
        _SET_PRICE(level, chunk.keys[position])
        _SET_AMOUNT(level, chunk.values[position])
        return level

    def __reversed__(self) -> Iterator[PriceLevel]:
        return iter(self[::-1])

    def __contains__(self, level: object) -> bool:
        if type(level) is not PriceLevel:
            raise TypeError(f"a member of levels must be a PriceLevel, got {safe_repr(level)}; amount_at takes a price")
        return self.by_price.at(level.price) == level.accumulated_liquidity

    def index(self, level: PriceLevel, start: int = 0, stop: int | None = None) -> int:
        """Return the position of a level; `ValueError` if there is none."""
        if level not in self:
            raise ValueError(f"{level} is not in the levels")
        return self.prices.index(level.price, start, len(self) if stop is None else stop)

    def __repr__(self) -> str:
        best = ", ".join(map(repr, self[:REPR_LEVELS]))
        if len(self) <= REPR_LEVELS:
            return f"Levels({self.side}, [{best}])"
        return f"<Levels: {len(self)} {self.side.value}s, best {best}, …>"

    def _repr_html_(self) -> str:
        return html_table(
            f"{len(self):,} {self.side.value}s",
            ("price", "accumulated_liquidity"),
            [(level.price, level.accumulated_liquidity) for level in self[:SHOWN_ROWS]],
            left_out=len(self) - SHOWN_ROWS,
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # the signature of IPython
        del cycle
        if len(self) > PRINTED_LEVELS:
            printer.text(repr(self))
        else:
            print_call(printer, "Levels", self.side, list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _levels_of_pickle, (self.side, " ".join(map(str, self.prices)), array("Q", self.amounts))


_SET_SIDE: Final = Levels.__dict__["side"].__set__
_SET_BY_PRICE: Final = Levels.__dict__["by_price"].__set__


def _levels_of_pickle(side: Side, prices: str, amounts: MutableSequence[int]) -> Levels:
    column = array("Q", amounts)
    for position, amount in enumerate(column):
        if not amount:
            reject_amount(f"{side.value}s[{position}].accumulated_liquidity", amount, "from 1 to 2^64-1")
    return levels_of_columns(side, parse_prices(prices.split()), column)


def levels_of_columns(side: Side, prices: list[Decimal], amounts: MutableSequence[int]) -> Levels:
    """Return the levels of two columns: prices from `market_index.prices`, and an array of amounts from 1 to 2^64-1."""
    require_order(side, prices)
    levels = object.__new__(Levels)
    levels.__attrs_init__(side, Chunked.of(_order(side), Chunk(prices, amounts)))
    return levels


def gathered(side: Side, entries: Iterable[Entry]) -> Levels:
    """Return the levels of entries in any order. See `OrderBook.from_levels` for the rules and the errors."""
    totals: dict[str, int] = {}
    for price, amount in read_entries(side, entries):
        text = price_key(price)
        totals[text] = totals.get(text, 0) + (amount or 0)
    return levels_of_totals(side, totals)


def levels_of_totals(side: Side, totals: Mapping[str, int]) -> Levels:
    """Return the levels of totals by the `price_key` of their price; zeros are dropped (decision 14)."""
    prices: list[Decimal] = []
    amounts = array("Q")
    by_price = zip(map(Decimal, totals), totals.values(), strict=True)
    for price, total in sorted(by_price, key=itemgetter(0), reverse=side is Side.BID):
        if total > MAX_LIQUIDITY:
            reject_total(side, price, total)
        if total:
            prices.append(price)
            amounts.append(total)
    return levels_of_columns(side, prices, amounts)


def require_order(side: Side, prices: list[Decimal]) -> None:
    """Raise `InvalidOrderBook`, which names the place, unless each price is worse than the previous one."""
    is_better = gt if side is Side.BID else lt
    if not all(map(is_better, prices, prices[1:])):
        position = list(map(is_better, prices, prices[1:])).index(False)
        raise InvalidOrderBook(
            f"{side.value}s[{position + 1}].price must be {'below' if side is Side.BID else 'above'} "
            f"{side.value}s[{position}].price, which is {price_text(prices[position])}, "
            f"got {price_text(prices[position + 1])}"
        )


def require_amount(name: str, value: object) -> None:
    """Raise `InvalidOrderBook` unless the value is an int, not a bool, from 0 to 2^64-1."""
    if type(value) is not int or not 0 <= value <= MAX_LIQUIDITY:
        reject_amount(name, value)


def reject_amount(name: str, value: object, bounds: str = "from 0 to 2^64-1") -> NoReturn:
    """Raise `InvalidOrderBook` for a value that is not an amount."""
    given = safe_repr(value) if type(value) is int else f"{type(value).__name__}: {safe_repr(value)}"
    raise InvalidOrderBook(f"{name} must be a whole number (int) {bounds}, got {given}")


def reject_total(side: Side, price: Decimal, total: int) -> NoReturn:
    """Raise `InvalidOrderBook` for a total above 2^64-1 at a price (decision 13)."""
    raise InvalidOrderBook(f"the total of the {side.value}s at {price_text(price)} must be at most 2^64-1, got {total}")


def read_entries(side: Side, entries: Iterable[Entry]) -> list[tuple[Decimal, int | None]]:
    """Validate entries, and return the price and the amount of each; None for 0, which is not a level (decision 14).

    An error names the place, such as `bids[3]`.
    """
    require_iterable(f"{side.value}s", entries, "PriceLevel or (price, amount)")
    read: list[tuple[Decimal, int | None]] = []
    for entry in entries:
        if type(entry) is PriceLevel:
            read.append((entry.price, entry.accumulated_liquidity))
            continue
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise InvalidOrderBook(
                f"{side.value}s[{len(read)}] must be a PriceLevel or (price, amount), got {safe_repr(entry)}"
            )
        price, amount = entry
        try:
            price = to_price(price)
            require_amount("the amount", amount)
        except MarketIndexError as error:
            raise error.at(f"{side.value}s[{len(read)}]") from None
        read.append((price, amount or None))
    return read
