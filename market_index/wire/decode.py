"""Strict decoding of order books, pair lists, and the other lines of files from JSON.

Theory of operation
    `json_value` decodes the text. The prices and the amounts of a book are then validated as whole columns, at C speed.
    If a check fails, `_require_order_book` walks the decoded value to find the place of the fault. All other messages
    are read in one stage: `_members` and `_items` read objects and arrays, and say where a value is invalid.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

from attrs import frozen

from market_index.assets import AssetId
from market_index.errors import InvalidFreshness, InvalidOrderBook, InvalidPairList, MarketIndexError, safe_repr
from market_index.freshness import Freshness, parse_time
from market_index.levels import MAX_LIQUIDITY, LevelChanges, Levels, levels_of_columns
from market_index.order_book import OrderBook
from market_index.pairs import Pair, PairInfo
from market_index.prices import Side, parse_price, parse_prices
from market_index.wire.json_value import JSON_TYPES, Fault, Number, parse, require_type

T = TypeVar("T")

Bytes: TypeAlias = bytes | bytearray | memoryview

Reader: TypeAlias = Callable[[Any], Any]
"""Returns what a JSON value means; raises `Fault` if it is not valid."""

MAX_ORDER_BOOK_BYTES: Final = 16 * 1024 * 1024
"""The maximum size of the JSON of one order book in stores, and for feeds: more than 180,000 levels.

`order_book_from_json` has no limit. Its caller can compare the size first, before it reads or inflates the whole text.
"""


def order_book_from_json(text: Bytes, *, ignore_unknown: bool = False) -> OrderBook:
    """Decode an order book from the JSON of the order-book endpoint; `spot`, `bids` and `asks` may be absent.

    Levels must be in the order of the contract, one per price.

    >>> order_book_from_json(b'{"base": "%s:", "quote": "ADA", "bids": [{"price": "0.5"}]}' % (b"00" * 28))
    Traceback (most recent call last):
    market_index.errors.InvalidOrderBook: bids[0].accumulated_liquidity: missing

    Args:
        text: The JSON in UTF-8.
        ignore_unknown: Ignore keys that the contract does not have, as in a response of a service: services add keys.
            Otherwise they are an error, as in a record of a file or a store (decision 24).

    Raises:
        InvalidAssetId: An identifier is invalid.
        InvalidPrice: A price is invalid.
        InvalidOrderBook: The text is not JSON of this shape, or the book is invalid. All three name the place.
    """
    with _errors_of(InvalidOrderBook):
        return _order_book(parse(text), ignore_unknown=ignore_unknown)


def order_book_changes_from_json(
    text: Bytes, *, ignore_unknown: bool = False
) -> tuple[Pair, LevelChanges, LevelChanges, Decimal | None]:
    """Decode the changes of an order book: its pair, and the bids, the asks and the spot for `OrderBook.apply`.

    No key may be absent. The levels may have any order.

    >>> pair = b'"base": "ADA", "quote": "%s:"' % (b"00" * 28)
    >>> level = b'{"price": "0.5", "accumulated_liquidity": 0}'
    >>> changes = order_book_changes_from_json(b'{%s, "spot": null, "bids": [%s], "asks": []}' % (pair, level))
    >>> changes[1:]
    (((Decimal('0.5'), 0),), (), None)

    Args:
        text: The JSON in UTF-8.
        ignore_unknown: As in `order_book_from_json`.

    Raises:
        InvalidAssetId: An identifier is invalid.
        InvalidPrice: A price is invalid.
        InvalidOrderBook: The text is not JSON of this shape. All three name the place.
    """
    with _errors_of(InvalidOrderBook):
        level = partial(_level, 0, ignore_unknown=ignore_unknown)
        side = partial(_items, level)
        readers = _PAIR_READERS | {"spot": _price_or_none, "bids": side, "asks": side}
        base, quote, spot, bids, asks = _members(readers, parse(text), ignore_unknown=ignore_unknown)
        return Pair(base, quote), tuple(bids), tuple(asks), spot


def pair_list_from_json(text: Bytes, *, ignore_unknown: bool = False) -> tuple[PairInfo, ...]:
    """Decode a pair list from the JSON of the pair-list endpoint; the pairs may have any order, but must not repeat.

    >>> text = b'{"pairs": [{"base": "ADA", "quote": "%s:", "last_spot": "0.5"}]}' % (b"00" * 28)
    >>> pair_list_from_json(text)[0].last_spot
    Decimal('0.5')

    Args:
        text: The JSON in UTF-8.
        ignore_unknown: As in `order_book_from_json`.

    Raises:
        InvalidAssetId: An identifier is invalid.
        InvalidPrice: A price is invalid.
        InvalidPairList: The text is not JSON of this shape, or a pair repeats. All three name the place.
    """
    with _errors_of(InvalidPairList):
        infos = partial(_items, partial(_pair_info, ignore_unknown=ignore_unknown))
        pairs: list[PairInfo]
        (pairs,) = _members({"pairs": infos}, parse(text), ignore_unknown=ignore_unknown)
    seen: set[Pair] = set()
    for position, info in enumerate(pairs):
        if info.pair in seen:
            raise InvalidPairList(f"pairs[{position}]: a pair must occur once, got {info.pair} again")
        seen.add(info.pair)
    return tuple(pairs)


def pair_named_in(text: Bytes) -> Pair | None:
    """Return the pair of an order book in JSON, even if the book is invalid; None if the text has no valid pair.

    >>> str(pair_named_in(b'{"base": "%s:", "quote": "ADA", "bids": "none"}' % (b"00" * 28)))
    '00000000000000000000000000000000000000000000000000000000:/ADA'
    """
    try:
        value = parse(text)
        require_type(value, dict)
        return Pair(_asset(value.get("base")), _asset(value.get("quote")))
    except Fault:
        return None


def freshness_from_json(text: Bytes) -> Freshness:
    """Decode a freshness; `published_at` may be absent. Raises `InvalidFreshness`.

    >>> freshness_from_json(b'{"as_of": "slot 145000000"}').as_of
    'slot 145000000'
    """
    with _errors_of(InvalidFreshness):
        as_of, published_at = _members(_FRESHNESS_READERS, parse(text), optional={"published_at"})
    return Freshness(as_of, published_at)


@frozen
class CommitLine:
    """A commit line: the freshness of the lines before it, and when they were recorded.

    `recorded_at` is wall-clock time of the recorder, in UTC and milliseconds; None if the line is not of a recording.
    """

    freshness: Freshness
    recorded_at: datetime | None = None


def commit_from_json(text: Bytes) -> CommitLine:
    """Decode a commit line; `published_at` and `recorded_at` may be absent. Raises `InvalidFreshness`.

    >>> commit_from_json(b'{"as_of": "slot 145000000", "recorded_at": "2026-11-22T04:17:03Z"}').recorded_at
    datetime.datetime(2026, 11, 22, 4, 17, 3, tzinfo=datetime.timezone.utc)
    """
    with _errors_of(InvalidFreshness):
        readers = _FRESHNESS_READERS | {"recorded_at": _time_or_none}
        as_of, published_at, recorded_at = _members(readers, parse(text), optional={"published_at", "recorded_at"})
    return CommitLine(Freshness(as_of, published_at), recorded_at)


def is_commit(text: bytes) -> bool:
    """Whether a line is a commit line and not an order book, even if its values are invalid.

    >>> is_commit(b'{"as_of": 7}'), is_commit(b'{"base": "ADA", "as_of": 7}'), is_commit(b'{"as_of"')
    (True, False, False)
    """
    keys = _keys_with("as_of", text)
    return bool(keys) and keys.isdisjoint({"base", "quote"})


def retraction_from_json(text: Bytes) -> Pair:
    """Decode a retract line, and return its pair. Raises `InvalidAssetId` or `InvalidOrderBook`.

    >>> str(retraction_from_json(b'{"retract": true, "base": "ADA", "quote": "%s:"}' % (b"00" * 28)))
    'ADA/00000000000000000000000000000000000000000000000000000000:'
    """
    with _errors_of(InvalidOrderBook):
        _, base, quote = _members({"retract": _true} | _PAIR_READERS, parse(text))
    return Pair(base, quote)


def is_retraction(text: bytes) -> bool:
    """Whether a line is a retract line and not an order book, even if its values are invalid.

    >>> is_retraction(b'{"retract": 7}'), is_retraction(b'{"base": "ADA"}'), is_retraction(b'{"retract"')
    (True, False, False)
    """
    return bool(_keys_with("retract", text))


def object_from_json(text: Bytes) -> dict[str, object]:
    """Decode a JSON object, such as an event of a feed of orders. Raises `InvalidOrderBook`.

    A number that is not an integer, or has too many digits to convert, becomes a `Number`.

    >>> object_from_json(b'{"block": "slot 145000000"}')
    {'block': 'slot 145000000'}
    """
    with _errors_of(InvalidOrderBook):
        value: dict[str, object] = parse(text)
        require_type(value, dict)
    return value


@contextmanager
def _errors_of(kind: type[MarketIndexError]) -> Iterator[None]:
    """Raise the error of the library for a fault: of class `kind`, or that of an invalid identifier or price."""
    try:
        yield
    except Fault as fault:
        raise fault.error(kind) from None


def _keys_with(key: str, text: bytes) -> frozenset[str]:
    """Return the keys of the object in a text if it has this key; none for any other text."""
    # Most lines are order books, which are not decoded for this.
    value = None
    if f'"{key}"'.encode() in text:
        with suppress(Fault):
            value = parse(text)
    return frozenset(value) if isinstance(value, dict) and key in value else frozenset()


# Value to order book


_KEYS: Final = {"base", "quote", "spot", "bids", "asks"}
_PRICE: Final = itemgetter("price")
_AMOUNT: Final = itemgetter("accumulated_liquidity")


def _order_book(value: Any, *, ignore_unknown: bool) -> OrderBook:
    """Return the order book of a decoded value. Raises `Fault` or an error of the library, which name the place."""
    try:
        pair = Pair(AssetId.parse(value["base"]), AssetId.parse(value["quote"]))
        if not ignore_unknown:
            _require_known_keys(value)
        return OrderBook(pair, *_sides(value.get("bids", []), value.get("asks", [])), value.get("spot"))
    except (MarketIndexError, AttributeError, KeyError, OverflowError, TypeError):
        _require_order_book(value, ignore_unknown=ignore_unknown)
        # Each part is valid by itself: the error is about the order of levels, or about two equal assets.
        raise


def _require_known_keys(value: dict[str, Any]) -> None:
    levels = value.get("bids", []) + value.get("asks", [])
    # A level has at least its two keys: `_sides` requires them.
    if not value.keys() <= _KEYS or not set(map(len, levels)) <= {2}:
        raise KeyError


def _sides(bids: Any, asks: Any) -> tuple[Levels, Levels]:
    """Return the levels of both sides, validated as columns."""
    if type(bids) is not list or type(asks) is not list:
        raise TypeError
    levels = bids + asks
    prices, amounts = parse_prices(list(map(_PRICE, levels))), list(map(_AMOUNT, levels))
    # The array rejects amounts that are not from 0 to 2^64-1.
    column = array("Q", amounts)
    if levels and not (set(map(type, amounts)) == {int} and all(amounts)):
        raise TypeError
    best_ask = len(bids)
    return (
        levels_of_columns(Side.BID, prices[:best_ask], column[:best_ask]),
        levels_of_columns(Side.ASK, prices[best_ask:], column[best_ask:]),
    )


# The place of a fault, and other messages


def _require_order_book(value: Any, *, ignore_unknown: bool) -> None:
    """Raise `Fault` for the first part of a book that is not valid by itself."""
    side = partial(_items, partial(_level, 1, ignore_unknown=ignore_unknown))
    readers = _PAIR_READERS | {"spot": _price_or_none, "bids": side, "asks": side}
    _members(readers, value, optional={"spot", "bids", "asks"}, ignore_unknown=ignore_unknown)


def _members(
    readers: Mapping[str, Reader],
    value: Any,
    *,
    optional: Collection[str] = (),
    ignore_unknown: bool = False,
) -> list[Any]:
    """Return the members of an object, each read by its reader, in the order of the readers; None if it is absent."""
    require_type(value, dict)
    members: list[Any] = []
    for name, read in readers.items():
        if name not in value:
            if name not in optional:
                raise Fault("missing", name)
            members.append(None)
            continue
        try:
            members.append(read(value[name]))
        except Fault as fault:
            raise fault.under(name) from None
    if not ignore_unknown and (unknown := value.keys() - readers.keys()):
        raise Fault(f"unknown key {safe_repr(min(unknown))}")
    return members


def _items(read: Reader, value: Any) -> list[Any]:
    """Return the items of an array, each read by a reader."""
    require_type(value, list)
    items: list[Any] = []
    for item in value:
        try:
            items.append(read(item))
        except Fault as fault:
            raise fault.under(f"[{len(items)}]") from None
    return items


def _level(least: int, value: Any, *, ignore_unknown: bool) -> tuple[Decimal, int]:
    """Return the price and the amount of a level, or of a change of one, whose amount may be 0."""
    readers: dict[str, Reader] = {"price": _price, "accumulated_liquidity": partial(_amount, least)}
    price, amount = _members(readers, value, ignore_unknown=ignore_unknown)
    return price, amount


def _pair_info(value: Any, *, ignore_unknown: bool) -> PairInfo:
    base, quote, last_spot = _members(_INFO_READERS, value, ignore_unknown=ignore_unknown)
    try:
        return PairInfo(base, quote, last_spot)
    except MarketIndexError as error:
        raise Fault(error) from None


def _text(read: Callable[[str], T], value: Any) -> T:
    """Read a value that is a string on the wire."""
    require_type(value, str)
    try:
        return read(value)
    except MarketIndexError as error:
        raise Fault(error) from None


def _text_or_none(read: Callable[[str], T], value: Any) -> T | None:
    return None if value is None else _text(read, value)


def _amount(least: int, value: Any) -> int:
    if type(value) is not int or not least <= value <= MAX_LIQUIDITY:
        is_number = type(value) in {int, Number}
        given = safe_repr(value) if is_number else f"{JSON_TYPES[type(value)]}: {safe_repr(value)}"
        raise Fault(f"must be a whole number from {least} to 2^64-1, got {given}")
    return value


def _true(value: Any) -> bool:
    if value is not True:
        raise Fault(f"must be true, got {JSON_TYPES[type(value)]}: {safe_repr(value)}")
    return True


_asset: Final[Reader] = partial(_text, AssetId.parse)
_price: Final[Reader] = partial(_text, parse_price)
_price_or_none: Final[Reader] = partial(_text_or_none, parse_price)
_time_or_none: Final[Reader] = partial(_text_or_none, parse_time)

_PAIR_READERS: Final[dict[str, Reader]] = {"base": _asset, "quote": _asset}
_INFO_READERS: Final[dict[str, Reader]] = _PAIR_READERS | {"last_spot": _price_or_none}
_FRESHNESS_READERS: Final[dict[str, Reader]] = {"as_of": partial(_text_or_none, str), "published_at": _time_or_none}
