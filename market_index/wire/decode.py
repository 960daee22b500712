"""Strict decoding of order books, pair lists, and the other lines of files from JSON.

Theory of operation
    `json_value` decodes the text. The prices and the amounts of a book are then validated as whole columns, at C speed.
    If a check fails, a cattrs converter walks the decoded value to find the place of the fault. The converter also
    structures pair lists, commit lines and retract lines.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin

from attrs import frozen, has
from cattrs import AttributeValidationNote, ClassValidationError, Converter, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

from market_index.assets import AssetId
from market_index.errors import InvalidFreshness, InvalidOrderBook, InvalidPairList, MarketIndexError, safe_repr
from market_index.freshness import Freshness, parse_time
from market_index.levels import MAX_LIQUIDITY, LevelChanges, Levels, levels_of_columns
from market_index.order_book import OrderBook
from market_index.pairs import Pair, PairInfo, require_trackable
from market_index.prices import Side, parse_price, parse_prices, price_text
from market_index.wire.json_value import JSON_TYPES, Fault, parse, require_type

T = TypeVar("T")

Bytes: TypeAlias = bytes | bytearray | memoryview

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
    try:
        return _order_book(parse(text), ignore_unknown=ignore_unknown)
    except Fault as fault:
        raise fault.error(InvalidOrderBook) from None


def order_book_changes_from_json(
    text: Bytes, *, ignore_unknown: bool = False
) -> tuple[Pair, LevelChanges, LevelChanges, Decimal | None]:
    """Decode the changes of an order book: its pair, and the bids, the asks and the spot for `OrderBook.apply`.

    No key may be absent. The levels may have any order; a price must occur once per side.

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
        InvalidOrderBook: The text is not JSON of this shape, a price repeats, or the pair has one asset twice. All
            three name the place.
    """
    message = _read(text, _OrderBookChangesMessage, InvalidOrderBook, ignore_unknown=ignore_unknown, least_amount=0)
    pair = Pair(message.base, message.quote)
    require_trackable(pair)
    return pair, _level_changes("bids", message.bids), _level_changes("asks", message.asks), message.spot


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
    pairs = _read(text, _PairListMessage, InvalidPairList, ignore_unknown=ignore_unknown).pairs
    seen: set[Pair] = set()
    for position, info in enumerate(pairs):
        if info.pair in seen:
            raise InvalidPairList(f"pairs[{position}]: a pair must occur once, got {info.pair} again")
        seen.add(info.pair)
    return pairs


def pair_named_in(text: Bytes) -> Pair | None:
    """Return the pair of an order book in JSON, even if the book is invalid; None if the text has no valid pair.

    >>> str(pair_named_in(b'{"base": "%s:", "quote": "ADA", "bids": "none"}' % (b"00" * 28)))
    '00000000000000000000000000000000000000000000000000000000:/ADA'
    """
    try:
        value = parse(text)
        require_type(value, dict)
        return Pair(_asset(value.get("base"), AssetId), _asset(value.get("quote"), AssetId))
    except Fault:
        return None


def freshness_from_json(text: Bytes, *, ignore_unknown: bool = False) -> Freshness:
    """Decode a freshness, also that of a commit line; `published_at` may be absent. Raises `InvalidFreshness`.

    `ignore_unknown` is as in `order_book_from_json`.

    >>> freshness_from_json(b'{"as_of": "slot 145000000"}').as_of
    'slot 145000000'
    """
    message = _read(text, _CommitMessage, InvalidFreshness, ignore_unknown=ignore_unknown)
    return Freshness(message.as_of, message.published_at)


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
    message = _read(text, _CommitMessage, InvalidFreshness)
    return CommitLine(Freshness(message.as_of, message.published_at), message.recorded_at)


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
    message = _read(text, _RetractionMessage, InvalidOrderBook)
    return Pair(message.base, message.quote)


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
    try:
        value: dict[str, object] = parse(text)
        require_type(value, dict)
    except Fault as fault:
        raise fault.error(InvalidOrderBook) from None
    return value


def _read(text: Bytes, message: type[T], kind: type[MarketIndexError], **rules: Any) -> T:
    """Return the message in a text. Raises an error of class `kind`, or of an invalid identifier or price."""
    try:
        return _converter(**rules).structure(parse(text), message)
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


def _level_changes(side: str, levels: Iterable[_LevelMessage]) -> LevelChanges:
    changes: dict[Decimal, int] = {}
    for position, level in enumerate(levels):
        if level.price in changes:
            price = price_text(level.price)
            raise InvalidOrderBook(f"{side}[{position}].price: a price must occur once, got {price} again")
        changes[level.price] = level.accumulated_liquidity
    return tuple(changes.items())


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
        _converter(ignore_unknown=ignore_unknown).structure(value, _OrderBookMessage)
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


@frozen
class _LevelMessage:
    """`PriceLevel` of the contract, or a level of the event `change`."""

    price: Decimal
    accumulated_liquidity: int


@frozen
class _OrderBookMessage:
    """`GetOrderBookResponse` of the contract."""

    base: AssetId
    quote: AssetId
    spot: Decimal | None = None
    bids: tuple[_LevelMessage, ...] = ()
    asks: tuple[_LevelMessage, ...] = ()


@frozen
class _OrderBookChangesMessage:
    """The data of the event `change`."""

    base: AssetId
    quote: AssetId
    spot: Decimal | None
    bids: tuple[_LevelMessage, ...]
    asks: tuple[_LevelMessage, ...]


@frozen
class _PairListMessage:
    """The response body of the pair-list endpoint."""

    pairs: tuple[PairInfo, ...]


@frozen
class _CommitMessage:
    """A commit line; without `recorded_at`, a freshness."""

    as_of: str | None
    published_at: datetime | None = None
    recorded_at: datetime | None = None


@frozen
class _RetractionMessage:
    """A retract line."""

    retract: bool
    base: AssetId
    quote: AssetId


@cache
def _converter(*, ignore_unknown: bool = False, least_amount: int = 1) -> Converter:
    """Return the converter of messages. It raises `Fault`, and stops at the first one."""
    converter = Converter()
    converter.register_structure_hook(AssetId, _asset)
    converter.register_structure_hook(Decimal, partial(_structured_text, parse_price))
    converter.register_structure_hook(int, partial(_amount, least_amount))
    converter.register_structure_hook(str, partial(_structured_text, str))
    converter.register_structure_hook(datetime, partial(_structured_text, parse_time))
    converter.register_structure_hook(bool, _true)

    def object_hook(shape: type) -> Callable[[Any, Any], Any]:
        structure: Callable[[Any, Any], Any] = make_dict_structure_fn(
            shape, converter, _cattrs_forbid_extra_keys=not ignore_unknown
        )
        return partial(_structured_object, structure)

    def array_hook(shape: Any) -> Callable[[Any, Any], Any]:
        return partial(_structured_array, converter.get_structure_hook(get_args(shape)[0]))

    converter.register_structure_hook_factory(has, object_hook)
    converter.register_structure_hook_factory(_is_array, array_hook)
    return converter


def _is_array(shape: Any) -> bool:
    return get_origin(shape) is tuple


def _structured_text(parse: Callable[[str], T], value: Any, _: object) -> T:
    """Structure a value that is a string on the wire."""
    require_type(value, str)
    try:
        return parse(value)
    except MarketIndexError as error:
        raise Fault(error) from None


_asset: Final = partial(_structured_text, AssetId.parse)


def _amount(least: int, value: Any, _: object) -> int:
    if type(value) is not int or not least <= value <= MAX_LIQUIDITY:
        raise Fault(f"must be a whole number from {least} to 2^64-1, got {JSON_TYPES[type(value)]}: {safe_repr(value)}")
    return value


def _true(value: Any, _: object) -> bool:
    if value is not True:
        raise Fault(f"must be true, got {JSON_TYPES[type(value)]}: {safe_repr(value)}")
    return True


def _structured_array(structure: Callable[[Any, Any], T], value: Any, _: object) -> tuple[T, ...]:
    """Structure an array, each item with a function."""
    require_type(value, list)
    items: list[T] = []
    for item in value:
        try:
            items.append(structure(item, None))
        except Fault as fault:
            raise fault.under(f"[{len(items)}]") from None
    return tuple(items)


def _structured_object(structure: Callable[[Any, Any], T], value: Any, of_type: object) -> T:
    """Structure an object with the function that cattrs generated for a class."""
    require_type(value, dict)
    try:
        return structure(value, of_type)
    except ClassValidationError as group:
        first = group.exceptions[0]
    if isinstance(first, ForbiddenExtraKeysError):
        raise Fault(f"unknown key {safe_repr(min(first.extra_fields))}")
    if isinstance(first, MarketIndexError):
        # From the constructor: each attribute is valid, but their combination is not.
        raise Fault(first)
    name = next(note.name for note in first.__notes__ if isinstance(note, AttributeValidationNote))
    raise first.under(name) if isinstance(first, Fault) else Fault("missing", name)
