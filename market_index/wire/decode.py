"""Strict decoding of order books, pair lists, and the other lines of files from JSON.

Theory of operation
    `json_value` decodes the text once. The prices and the amounts of a book are then validated as whole columns, at C
    speed. If a check fails, a cattrs converter walks the decoded value to find the place of the fault. The converter
    also structures pair lists, commit lines and retract lines.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any, Final, Literal, TypeVar

from attrs import frozen
from cattrs import AttributeValidationNote, ClassValidationError, Converter, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

from market_index.assets import AssetId
from market_index.errors import (
    InvalidFreshness,
    InvalidOrderBook,
    InvalidPairList,
    MarketIndexError,
    safe_repr,
)
from market_index.freshness import Freshness, parse_time
from market_index.levels import MAX_LIQUIDITY, Levels, levels_of_columns
from market_index.order_book import OrderBook
from market_index.pairs import Pair, PairInfo
from market_index.prices import Side, parse_price, parse_prices
from market_index.wire.json_value import (
    JSON_TYPES,
    Fault,
    Number,
    has_no_repeated_key,
    parse,
    parse_with_repeated_keys,
    require_type,
    utf8_text,
)

T = TypeVar("T")

MAX_ORDER_BOOK_BYTES: Final = 16 * 1024 * 1024
"""The maximum size of the JSON of one order book in stores, and for feeds: more than 180,000 levels.

`order_book_from_json` has no limit. Its caller can compare the size first, before it reads or inflates the whole text.
"""


def order_book_from_json(text: bytes | bytearray | memoryview) -> OrderBook:
    """Decode an order book from the JSON of the order-book endpoint; `spot`, `bids` and `asks` may be absent.

    Levels must be in the order of the contract, one per price.

    >>> order_book_from_json(b'{"base": "%s:", "quote": "ADA", "bids": [{"price": "0.5"}]}' % (b"00" * 28))
    Traceback (most recent call last):
    market_index.errors.InvalidOrderBook: bids[0].accumulated_liquidity: missing

    Raises:
        InvalidAssetId: An identifier is invalid.
        InvalidPrice: A price is invalid.
        InvalidOrderBook: The text is not JSON of this shape, or the book is invalid. All three name the place.
    """
    try:
        characters = utf8_text(text)
        value = parse(characters)
        book = _order_book(value)
        # Each level has three strings: two keys and a price.
        if not has_no_repeated_key(characters, value, 3 * (len(book.bids) + len(book.asks))):
            _CONVERTER.structure(parse_with_repeated_keys(characters), _OrderBookMessage)
    except Fault as fault:
        raise fault.error(InvalidOrderBook) from None
    return book


def pair_list_from_json(text: bytes | bytearray | memoryview) -> tuple[PairInfo, ...]:
    """Decode a pair list from the JSON of the pair-list endpoint; the pairs may have any order, but must not repeat.

    >>> text = b'{"pairs": [{"base": "ADA", "quote": "%s:", "last_spot": "0.5"}]}' % (b"00" * 28)
    >>> pair_list_from_json(text)[0].last_spot
    Decimal('0.5')

    Raises:
        InvalidAssetId: An identifier is invalid.
        InvalidPrice: A price is invalid.
        InvalidPairList: The text is not JSON of this shape, or a pair repeats. All three name the place.
    """
    try:
        value = parse_with_repeated_keys(utf8_text(text))
        pairs = _CONVERTER.structure(value, _PairListMessage).pairs
    except Fault as fault:
        raise fault.error(InvalidPairList) from None
    seen: set[Pair] = set()
    for position, info in enumerate(pairs):
        if info.pair in seen:
            raise InvalidPairList(f"pairs[{position}]: a pair must occur once, got {info.pair} again")
        seen.add(info.pair)
    return pairs


def freshness_from_json(text: bytes | bytearray | memoryview) -> Freshness:
    """Decode a freshness; `published_at` may be absent.

    >>> freshness_from_json(b'{"as_of": "slot 145000000"}').as_of
    'slot 145000000'

    Raises:
        InvalidFreshness: The text is not JSON of this shape, or a value is invalid.
    """
    message = _freshness_message(text, _FreshnessMessage)
    return Freshness(message.as_of, message.published_at)


@frozen
class CommitLine:
    """A commit line: the freshness of the lines before it, and when they were recorded.

    `recorded_at` is wall-clock time of the recorder, in UTC and milliseconds; None if the line is not of a recording.
    """

    freshness: Freshness
    recorded_at: datetime | None = None


def commit_from_json(text: bytes | bytearray | memoryview) -> CommitLine:
    """Decode a commit line: a freshness and `recorded_at`; that and `published_at` may be absent.

    >>> commit_from_json(b'{"as_of": "slot 145000000", "recorded_at": "2026-11-22T04:17:03Z"}').recorded_at
    datetime.datetime(2026, 11, 22, 4, 17, 3, tzinfo=datetime.timezone.utc)

    Raises:
        InvalidFreshness: The text is not JSON of this shape, or a value is invalid.
    """
    message = _freshness_message(text, _CommitMessage)
    return CommitLine(Freshness(message.as_of, message.published_at), message.recorded_at)


def is_commit(text: bytes) -> bool:
    """Whether a line is a commit line and not an order book, even if its values are invalid.

    >>> is_commit(b'{"as_of": 7}'), is_commit(b'{"base": "ADA", "as_of": 7}'), is_commit(b'{"as_of"')
    (True, False, False)
    """
    value = _object_with("as_of", text)
    return value is not None and value.keys().isdisjoint(("base", "quote"))


def retraction_from_json(text: bytes | bytearray | memoryview) -> Pair:
    """Decode a retract line, and return its pair.

    >>> str(retraction_from_json(b'{"retract": true, "base": "ADA", "quote": "%s:"}' % (b"00" * 28)))
    'ADA/00000000000000000000000000000000000000000000000000000000:'

    Raises:
        InvalidAssetId: An identifier is invalid.
        InvalidOrderBook: The text is not JSON of this shape. Both name the place.
    """
    try:
        message = _CONVERTER.structure(parse_with_repeated_keys(utf8_text(text)), _RetractionMessage)
    except Fault as fault:
        raise fault.error(InvalidOrderBook) from None
    return Pair(message.base, message.quote)


def is_retraction(text: bytes) -> bool:
    """Whether a line is a retract line and not an order book, even if its values are invalid.

    >>> is_retraction(b'{"retract": 7}'), is_retraction(b'{"base": "ADA"}'), is_retraction(b'{"retract"')
    (True, False, False)
    """
    return _object_with("retract", text) is not None


def object_from_json(text: bytes | bytearray | memoryview) -> dict[str, object]:
    """Decode a JSON object without repeated keys, such as an event of a feed of orders.

    A number that is not an integer, or has too many digits to convert, becomes a `Number`.

    >>> object_from_json(b'{"block": "slot 145000000"}')
    {'block': 'slot 145000000'}
    >>> object_from_json(b'{"block": "1", "block": "2"}')
    Traceback (most recent call last):
    market_index.errors.InvalidOrderBook: the key 'block' must not repeat

    Raises:
        InvalidOrderBook: The text is not such an object.
    """
    try:
        characters = utf8_text(text)
        value = parse(characters)
        require_type(value, dict)
        if not has_no_repeated_key(characters, value, 0):
            value = parse_with_repeated_keys(characters)
            require_type(value, dict)
    except Fault as fault:
        raise fault.error(InvalidOrderBook) from None
    decoded: dict[str, object] = value
    return decoded


def pair_named_in(text: bytes | bytearray | memoryview) -> Pair | None:
    """Return the pair of an order book in JSON, even if the book is invalid; None if the text has no valid pair.

    >>> str(pair_named_in(b'{"base": "ADA", "quote": "%s:", "bids": "none"}' % (b"00" * 28)))
    'ADA/00000000000000000000000000000000000000000000000000000000:'
    """
    try:
        value = parse_with_repeated_keys(utf8_text(text))
        require_type(value, dict)
        return Pair(_asset(value.get("base"), AssetId), _asset(value.get("quote"), AssetId))
    except Fault:
        return None


def _freshness_message(text: bytes | bytearray | memoryview, message: type[T]) -> T:
    try:
        return _CONVERTER.structure(parse_with_repeated_keys(utf8_text(text)), message)
    except Fault as fault:
        raise fault.error(InvalidFreshness) from None


def _object_with(key: str, text: bytes) -> dict[str, Any] | None:
    """Return the decoded object if it has the key; None for any other text."""
    # Most lines are order books, which are not decoded for this.
    if f'"{key}"'.encode() not in text:
        return None
    try:
        value = parse_with_repeated_keys(utf8_text(text))
    except Fault:
        return None
    return value if isinstance(value, dict) and key in value else None


# Value to order book


_KEYS: Final = {"base", "quote", "spot", "bids", "asks"}
_PRICE: Final = itemgetter("price")
_AMOUNT: Final = itemgetter("accumulated_liquidity")


def _order_book(value: Any) -> OrderBook:
    """Return the order book of a decoded value. Raises `Fault` or an error of the library, which name the place."""
    try:
        pair = Pair(AssetId.parse(value["base"]), AssetId.parse(value["quote"]))
        _require_known_keys(value)
        bids, asks = _sides(value.get("bids", []), value.get("asks", []))
        return OrderBook(pair, bids, asks, value.get("spot"))
    except (MarketIndexError, AttributeError, KeyError, OverflowError, TypeError):
        _CONVERTER.structure(value, _OrderBookMessage)
        # Each part is valid by itself: the error is about the order of levels, or about two equal assets.
        raise


def _require_known_keys(value: dict[str, Any]) -> None:
    if not value.keys() <= _KEYS:
        raise KeyError


def _sides(bids: list[Any], asks: list[Any]) -> tuple[Levels, Levels]:
    """Return the levels of both sides, validated as columns. `has_no_repeated_key` finds unknown keys."""
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


# The place of a fault, and the pair list


@frozen
class _LevelMessage:
    """`PriceLevel` of the contract."""

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
class _PairListMessage:
    """The response body of the pair-list endpoint."""

    pairs: tuple[PairInfo, ...]


@frozen
class _FreshnessMessage:
    """A freshness."""

    as_of: str | None
    published_at: datetime | None = None


@frozen
class _CommitMessage(_FreshnessMessage):
    """A commit line."""

    recorded_at: datetime | None = None


@frozen
class _RetractionMessage:
    """A retract line."""

    retract: Literal[True]
    base: AssetId
    quote: AssetId


def _structured_text(parse: Callable[[str], T], value: Any, _: object) -> T:
    """Structure a value that is a string on the wire."""
    require_type(value, str)
    try:
        return parse(value)
    except MarketIndexError as error:
        raise Fault(error) from None


def _amount(value: Any, _: object) -> int:
    if type(value) is not int or not 0 < value <= MAX_LIQUIDITY:
        is_number = type(value) in {int, Number}
        given = safe_repr(value) if is_number else f"{JSON_TYPES[type(value)]}: {safe_repr(value)}"
        raise Fault(f"must be a whole number from 1 to 2^64-1, got {given}")
    return value


def _true(value: Any, _: object) -> bool:
    if value is not True:
        given = safe_repr(value) if isinstance(value, bool) else f"{JSON_TYPES[type(value)]}: {safe_repr(value)}"
        raise Fault(f"must be true, got {given}")
    return True


def _structured_array(structure: Callable[[Any, Any], T], value: Any, of_type: object) -> tuple[T, ...]:
    """Structure an array, each item with a function."""
    require_type(value, list)
    items: list[T] = []
    for item in value:
        try:
            items.append(structure(item, of_type))
        except Fault as fault:
            raise fault.under(f"[{len(items)}]") from None
    return tuple(items)


def _structured_object(structure: Callable[[Any, Any], T], value: Any, of_type: object) -> T:
    """Structure an object with the function that cattrs generated for a class."""
    require_type(value, dict)
    try:
        return structure(value, of_type)
    except ClassValidationError as group:
        raise _first_fault(group) from None


def _first_fault(group: ClassValidationError) -> Fault:
    """Return the fault of the first invalid attribute, with the name of the attribute as its place."""
    first = group.exceptions[0]
    if isinstance(first, ForbiddenExtraKeysError):
        return Fault(f"unknown key {safe_repr(min(first.extra_fields))}")
    if isinstance(first, MarketIndexError):
        # From the constructor: each attribute is valid, but their combination is not.
        return Fault(first)
    name = next(note.name for note in first.__notes__ if isinstance(note, AttributeValidationNote))
    if isinstance(first, Fault):
        return first.under(name)
    return Fault("missing", name)


_asset: Final = partial(_structured_text, AssetId.parse)
_CONVERTER: Final = Converter()
_CONVERTER.register_structure_hook(AssetId, _asset)
_CONVERTER.register_structure_hook(Decimal, partial(_structured_text, parse_price))
_CONVERTER.register_structure_hook(int, _amount)
_CONVERTER.register_structure_hook(str, partial(_structured_text, str))
_CONVERTER.register_structure_hook(datetime, partial(_structured_text, parse_time))
_CONVERTER.register_structure_hook_func(lambda shape: shape == Literal[True], _true)

# The hooks of attributes must be registered before the hook of their class is generated.
_generated: Final = partial(make_dict_structure_fn, converter=_CONVERTER, _cattrs_forbid_extra_keys=True)
_level: Final = partial(_structured_object, _generated(_LevelMessage))
_pair_info: Final = partial(_structured_object, _generated(PairInfo))
_CONVERTER.register_structure_hook_func(
    lambda shape: shape == tuple[_LevelMessage, ...], partial(_structured_array, _level)
)
_CONVERTER.register_structure_hook_func(
    lambda shape: shape == tuple[PairInfo, ...], partial(_structured_array, _pair_info)
)
_CONVERTER.register_structure_hook(_OrderBookMessage, partial(_structured_object, _generated(_OrderBookMessage)))
_CONVERTER.register_structure_hook(_PairListMessage, partial(_structured_object, _generated(_PairListMessage)))
_CONVERTER.register_structure_hook(_FreshnessMessage, partial(_structured_object, _generated(_FreshnessMessage)))
_CONVERTER.register_structure_hook(_CommitMessage, partial(_structured_object, _generated(_CommitMessage)))
_CONVERTER.register_structure_hook(_RetractionMessage, partial(_structured_object, _generated(_RetractionMessage)))
