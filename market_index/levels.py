"""Price levels, and `Levels`: one side of a book as an immutable sequence of them.

The levels of a side are stored as columns of prices and amounts in chunks. `PriceLevel` objects are created when they
are accessed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from decimal import Decimal
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias, final, overload

from attrs import field, frozen

from market_index.errors import InvalidOrderBook, MarketIndexError, require_iterable, require_type, safe_repr
from market_index.prices import EXACT, Side, parse_prices, price_argument, price_text, require_side, to_price
from market_index.printing import repr_html, repr_pretty
from market_index.sorted_map import Chunk, KeyOrder, SortedMap
from market_index.value import Value, slot_setters, unchecked

MAX_LIQUIDITY: Final = 2**64 - 1
"""The maximum liquidity of an order or a level, in the smallest unit of the base asset (decision 1)."""

REPR_LEVELS: Final = 3
"""The number of levels in the `repr` of one side."""


@final
@frozen(weakref_slot=False, getstate_setstate=False)
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

    price: Decimal = field(converter=price_argument)
    accumulated_liquidity: int

    def __attrs_post_init__(self) -> None:
        if (price := to_price(self.price)) is not self.price:
            _SET_PRICE(self, price)
        require_amount("accumulated_liquidity", self.accumulated_liquidity, 1)


Entry: TypeAlias = PriceLevel | tuple[Decimal | str, int] | list[Any]
"""A level, or a (price, amount) pair, also as a list, as `OrderBook.from_levels` and `OrderBook.apply` accept it."""

LevelChanges: TypeAlias = tuple[tuple[Decimal, int], ...]
"""Changes of one side: each a price and its absolute amount, 0 for a removed level."""

LevelsChunk: TypeAlias = Chunk[Decimal, int]
"""Prices and amounts."""

_PRICE: Final = attrgetter("price")
_AMOUNT: Final = attrgetter("accumulated_liquidity")
_LEVEL_SETTERS: Final = slot_setters(PriceLevel, "price", "accumulated_liquidity")
_SET_PRICE, _SET_AMOUNT = _LEVEL_SETTERS


def _level(price: Decimal, amount: int) -> PriceLevel:
    """Return the level of a valid price and amount, without validating them again."""
    level = object.__new__(PriceLevel)
    _SET_PRICE(level, price)
    _SET_AMOUNT(level, amount)
    return level


def _levels_of_chunk(chunk: LevelsChunk) -> list[PriceLevel]:
    return unchecked(PriceLevel, _LEVEL_SETTERS, chunk.keys, chunk.values)


# The key of a price in a dict. Hashes of numbers are predictable: an attacker could choose prices that collide.
price_key: Final = EXACT.to_sci_string


def _octets(price: Decimal) -> bytes:
    return price_key(price).encode()


_BID_ORDER: Final[KeyOrder[Decimal, int]] = KeyOrder(_octets, Side.BID.sort_key)
_ASK_ORDER: Final[KeyOrder[Decimal, int]] = KeyOrder(_octets, Side.ASK.sort_key)


@final
class Levels(Value, Sequence[PriceLevel]):
    """One side of a book: an immutable sequence of `PriceLevel`, best price first, one level per price.

    `prices` and `amounts` are its columns. A slice is `Levels` too. Derived levels share their unchanged chunks.
    `PriceLevel` objects are created at each access.

    >>> asks = Levels(Side.ASK, [PriceLevel("0.5", 7), PriceLevel("0.6", 9)])
    >>> asks[0].price, asks.amounts, len(asks)
    (Decimal('0.5'), (7, 9), 2)

    Raises:
        InvalidOrderBook: `side` is not a `Side`, an element is not a `PriceLevel`, or prices are out of order; the
            message names the place.
    """

    __slots__ = ("_by_price", "side")
    _by_price: SortedMap[Decimal, int]

    side: Side
    """The side of the book."""

    def __init__(self, side: Side, levels: Iterable[PriceLevel] = ()) -> None:
        require_side(side)
        entries = tuple(levels)
        for position, level in enumerate(entries):
            if type(level) is not PriceLevel:
                raise InvalidOrderBook(f"{side.value}s[{position}] must be a PriceLevel, got {safe_repr(level)}")
        columns = levels_of_columns(side, tuple(map(_PRICE, entries)), array("Q", map(_AMOUNT, entries)))
        _SET_BY_PRICE(self, by_price(columns))
        _SET_SIDE(self, side)

    @property
    def prices(self) -> tuple[Decimal, ...]:
        """The price of each level."""
        return tuple(self._by_price.keys())

    @property
    def amounts(self) -> tuple[int, ...]:
        """The accumulated liquidity of each level."""
        return tuple(self._by_price.values())

    def items(self) -> Iterator[tuple[Decimal, int]]:
        """Iterate over the price and the amount of each level, best price first.

        >>> dict(Levels(Side.ASK, [PriceLevel("0.5", 7)]).items())
        {Decimal('0.5'): 7}
        """
        return self._by_price.items()

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the columns by name, such as for `pandas.DataFrame(book.asks.to_columns())`.

        The names are those of the columns of a book, which has both sides.

        >>> Levels(Side.ASK, [PriceLevel("0.5", 7)]).to_columns()
        {'price': [Decimal('0.5')], 'amount': [7]}
        """
        return {"price": list(self._by_price.keys()), "amount": list(self._by_price.values())}

    def amount_at(self, price: Decimal | str) -> int:
        """Return the liquidity at exactly this price, 0 if there is no such level.

        Raises:
            InvalidPrice: The value is not a price.
        """
        return self._by_price.get(to_price(price)) or 0

    @property
    def best(self) -> PriceLevel | None:
        """The level of the best price, or None if there are no levels."""
        best = self._by_price.chunks[0]
        return _level(best.keys[0], best.values[0]) if best.keys else None

    def depth(self, levels: int) -> Levels:
        """Return the best `levels` price levels, or itself if it has no more.

        Raises:
            TypeError: `levels` is not an int.
            ValueError: `levels` is negative.
        """
        if type(levels) is not int:
            raise TypeError(f"levels must be an int, got {safe_repr(levels)}")
        if levels < 0:
            raise ValueError(f"levels must be 0 or more, got {safe_repr(levels)}")
        by_price = self._by_price.head(levels)
        return self if by_price is self._by_price else _levels(self.side, by_price)

    def applied(self, entries: Iterable[Entry]) -> Levels:
        """Return the levels after setting each price to its absolute amount, or itself if nothing changes.

        Raises:
            InvalidOrderBook: An entry or its amount is invalid; the message names the place.
            InvalidPrice: A price is invalid; the message names the place.
        """
        by_price = self._by_price.changed(read_entries(self.side, entries))
        return self if by_price is self._by_price else _levels(self.side, by_price)

    def changes_since(self, earlier: Levels) -> LevelChanges:
        """Return the changes that turn earlier levels into these: prices and absolute amounts, 0 for a removed level.

        They are what `applied` takes. Shared chunks are skipped, so the cost depends on what changed.

        Raises:
            TypeError: `earlier` is not `Levels`.
            ValueError: The earlier levels are of the other side.
        """
        require_type("earlier", earlier, Levels)
        if earlier.side is not self.side:
            raise ValueError(f"the earlier levels must be {self.side.value}s, got {earlier.side.value}s")
        changed, removed = self._by_price.changes_since(earlier._by_price)
        return (*changed, *[(price, 0) for price, _ in removed])

    def __len__(self) -> int:
        return self._by_price.size

    def __iter__(self) -> Iterator[PriceLevel]:
        return chain.from_iterable(map(_levels_of_chunk, self._by_price.chunks))

    @overload
    def __getitem__(self, index: int) -> PriceLevel: ...
    @overload
    def __getitem__(self, index: slice) -> Levels: ...
    def __getitem__(self, index: int | slice) -> PriceLevel | Levels:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step < 0:
                raise ValueError("levels are sorted, best price first: reversed(levels) starts at the worst price")
            if not start and step == 1:
                return self.depth(stop)
            return levels_of_columns(self.side, self.prices[index], array("Q", self.amounts[index]))
        try:
            position = range(len(self))[index]
        except TypeError:
            raise TypeError(
                f"the index of a level must be an int or a slice, got {safe_repr(index)}; amount_at takes a price"
            ) from None
        except IndexError:
            raise IndexError(f"{self.side.value}s[{index}] is out of range: there are {len(self)} levels") from None
        return _level(*self._by_price.at(position))

    def __reversed__(self) -> Iterator[PriceLevel]:
        return map(_level, reversed(self.prices), reversed(self.amounts))

    def __contains__(self, level: object) -> bool:
        if type(level) is not PriceLevel:
            raise TypeError(f"a member of levels must be a PriceLevel, got {safe_repr(level)}; amount_at takes a price")
        return self._by_price.get(level.price) == level.accumulated_liquidity

    def __eq__(self, other: object) -> bool:
        return self._by_price == other._by_price if type(other) is Levels else NotImplemented

    def __hash__(self) -> int:
        return hash((self.prices, self.amounts))

    def __repr__(self) -> str:
        best = ", ".join(map(repr, self[:REPR_LEVELS]))
        if len(self) <= REPR_LEVELS:
            return f"Levels({self.side}, [{best}])"
        return f"<Levels: {len(self)} {self.side.value}s, best {best}, …>"

    _repr_html_ = repr_html
    _repr_pretty_ = repr_pretty

    def _arguments(self) -> tuple[Any, ...]:
        return self.side, list(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.side, " ".join(map(str, self.prices)), array("Q", self.amounts))


_SET_SIDE, _SET_BY_PRICE = slot_setters(Levels, "side", "_by_price")


def _levels(side: Side, by_price: SortedMap[Decimal, int]) -> Levels:
    """Return the levels of valid columns, without validating them again."""
    levels = object.__new__(Levels)
    _SET_SIDE(levels, side)
    _SET_BY_PRICE(levels, by_price)
    return levels


def _unpickled(side: Side, prices: str, amounts: MutableSequence[int]) -> Levels:
    values, keys = parse_prices(prices.split())
    column = array("Q", amounts)
    if len(values) != len(column) or not all(column):
        raise InvalidOrderBook(f"{side.value}s must have an amount above 0 for each price, got {safe_repr(amounts)}")
    return levels_of_columns(side, values, column, keys)


def levels_of_columns(
    side: Side, prices: Sequence[Decimal], amounts: MutableSequence[int], keys: Sequence[str] | None = None
) -> Levels:
    """Return the levels of columns.

    Args:
        side: The side of the book.
        prices: Prices from `market_index.prices`.
        amounts: An array of amounts from 1 to 2^64-1.
        keys: The `price_key` of each price, if they are known.
    """
    _require_order(side, prices)
    octets = None if keys is None else map(str.encode, keys)
    return _levels(side, SortedMap.of(_BID_ORDER if side is Side.BID else _ASK_ORDER, prices, amounts, octets))


def by_price(levels: Levels) -> SortedMap[Decimal, int]:
    """Return the map of amounts by price, for other modules of this package."""
    return levels._by_price  # noqa: SLF001  # of the class above


def gathered(side: Side, entries: Iterable[Entry]) -> Levels:
    """Return the levels of entries in any order. See `OrderBook.from_levels` for the rules and the errors."""
    totals: dict[str, int] = {}
    for price, amount in read_entries(side, entries):
        text = price_key(price)
        totals[text] = totals.get(text, 0) + (amount or 0)
    return levels_of_totals(side, totals)


def levels_of_totals(side: Side, totals: Mapping[str, int]) -> Levels:
    """Return the levels of totals by the `price_key` of their price; zeros are dropped (decision 14).

    Raises `InvalidOrderBook` for a total above 2^64-1 (decision 13).
    """
    prices: list[Decimal] = []
    amounts = array("Q")
    by_price = zip(map(Decimal, totals), totals.values(), strict=True)
    for price, total in sorted(by_price, key=itemgetter(0), reverse=side is Side.BID):
        if total > MAX_LIQUIDITY:
            raise InvalidOrderBook(
                f"the total of the {side.value}s at {price_text(price)} must be at most 2^64-1, got {total}"
            )
        if total:
            prices.append(price)
            amounts.append(total)
    return levels_of_columns(side, prices, amounts)


def _require_order(side: Side, prices: Sequence[Decimal]) -> None:
    """Raise `InvalidOrderBook`, which names the place, unless each price is worse than the previous one."""
    if not all(map(side.is_better, prices, prices[1:])):
        position = list(map(side.is_better, prices, prices[1:])).index(False)
        raise InvalidOrderBook(
            f"{side.value}s[{position + 1}].price must be {'below' if side is Side.BID else 'above'} "
            f"{side.value}s[{position}].price, which is {price_text(prices[position])}, "
            f"got {price_text(prices[position + 1])}"
        )


def require_amount(name: str, value: object, least: int = 0, *, is_bounded: bool = True) -> None:
    """Raise `InvalidOrderBook` unless the value is an int, not a bool, from `least`, and to 2^64-1 if bounded."""
    if type(value) is not int or value < least or (is_bounded and value > MAX_LIQUIDITY):
        bounds = f"from {least} to 2^64-1" if is_bounded else f"of {least} or more"
        given = safe_repr(value) if type(value) is int else f"{type(value).__name__}: {safe_repr(value)}"
        raise InvalidOrderBook(f"{name} must be a whole number (int) {bounds}, got {given}")


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
