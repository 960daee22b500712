"""JSON to order books and pair lists, strictly.

Theory of operation
    The text is decoded once, by the decoder of the standard library. The levels of a book are validated as whole
    columns, at C speed. If a check fails, a cattrs converter walks the decoded value to name the place of the fault; it
    also structures the pair list.

    One fault leaves no trace in the decoded value: a key that repeats, of which the last value wins. That there is none
    follows from a count, see `_has_no_repeated_key`.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar

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
from market_index.levels import MAX_LIQUIDITY, Levels, Side, levels_of_columns
from market_index.order_book import OrderBook
from market_index.pairs import Pair, PairInfo
from market_index.prices import parse_price, parse_prices

T = TypeVar("T")

_MAX_INTEGER_DIGITS: Final = 40
"""More digits than any integer of the wire has; Python itself converts up to 4,300."""


def order_book_from_json(text: bytes | bytearray | memoryview) -> OrderBook:
    """Decode an order book in the shape of the order-book endpoint's answer; `spot`, `bids`, `asks` may be absent.

    Levels must be in the order of the contract, one per price.

    >>> order_book_from_json(b'{"base": "%s:", "quote": "ADA", "bids": [{"price": "0.5"}]}' % (b"00" * 28))
    Traceback (most recent call last):
    market_index.errors.InvalidOrderBook: bids[0].accumulated_liquidity: missing

    Raises `InvalidAssetId`, `InvalidPrice` or `InvalidOrderBook`, all of them `MarketIndexError` and `ValueError`.
    """
    try:
        characters = _characters(text)
        value = _value(characters)
        book = _order_book(value)
        # A level has three strings: two keys and a price.
        if not _has_no_repeated_key(characters, value, 3 * (len(book.bids) + len(book.asks))):
            _CONVERTER.structure(_value_with_repeated_keys(characters), _OrderBookMessage)
    except _Fault as fault:
        raise fault.error(InvalidOrderBook) from None
    return book


def pair_list_from_json(text: bytes | bytearray | memoryview) -> tuple[PairInfo, ...]:
    """Decode a pair list in the shape of the pair-list endpoint's answer, its pairs in any order, none twice.

    Raises `InvalidAssetId`, `InvalidPrice` or `InvalidPairList`, all of them `MarketIndexError` and `ValueError`.
    """
    try:
        value = _value_with_repeated_keys(_characters(text))
        pairs = _CONVERTER.structure(value, _PairListMessage).pairs
    except _Fault as fault:
        raise fault.error(InvalidPairList) from None
    seen: set[Pair] = set()
    for position, info in enumerate(pairs):
        if info.pair in seen:
            raise InvalidPairList(f"pairs[{position}]: a pair must occur once, got {info.pair} again")
        seen.add(info.pair)
    return pairs


def freshness_from_json(text: bytes | bytearray | memoryview) -> Freshness:
    """Decode the line of a file that says what the lines before it reflect, and perhaps when it was published.

    >>> freshness_from_json(b'{"as_of": "slot 145000000"}').as_of
    'slot 145000000'

    Raises `InvalidFreshness`.
    """
    try:
        value = _value_with_repeated_keys(_characters(text))
        message = _CONVERTER.structure(value, _FreshnessMessage)
    except _Fault as fault:
        raise fault.error(InvalidFreshness) from None
    return Freshness(message.as_of, message.published_at)


def is_freshness(text: bytes) -> bool:
    """Whether a line says what the lines before it reflect, even if it is invalid, and contains no order book.

    >>> is_freshness(b'{"as_of": 7}'), is_freshness(b'{"base": "ADA", "as_of": 7}'), is_freshness(b'{"as_of"')
    (True, False, False)
    """
    if b'"as_of"' not in text:
        return False
    try:
        value = _value_with_repeated_keys(_characters(text))
    except _Fault:
        return False
    return isinstance(value, dict) and "as_of" in value and value.keys().isdisjoint(("base", "quote"))


def object_from_json(text: bytes | bytearray | memoryview) -> dict[str, object]:
    """Decode an object in JSON, in which no key repeats, such as an event of a feed of orders.

    A number that is no integer, or is absurdly long, is a value of which only the `repr` is of use.

    >>> object_from_json(b'{"block": "slot 145000000"}')
    {'block': 'slot 145000000'}
    >>> object_from_json(b'{"block": "1", "block": "2"}')
    Traceback (most recent call last):
    market_index.errors.InvalidOrderBook: the key 'block' must not repeat

    Raises `InvalidOrderBook` for any other text.
    """
    try:
        characters = _characters(text)
        value = _value(characters)
        _require(value, dict)
        if not _has_no_repeated_key(characters, value, 0):
            value = _value_with_repeated_keys(characters)
            _require(value, dict)
    except _Fault as fault:
        raise fault.error(InvalidOrderBook) from None
    decoded: dict[str, object] = value
    return decoded


def pair_named_in(text: bytes | bytearray | memoryview) -> Pair | None:
    """Return the pair that an order book in JSON names, even if the book is invalid; None if it names none.

    >>> str(pair_named_in(b'{"base": "ADA", "quote": "%s:", "bids": "none"}' % (b"00" * 28)))
    'ADA/00000000000000000000000000000000000000000000000000000000:'
    """
    try:
        value = _value_with_repeated_keys(_characters(text))
        _require(value, dict)
        return Pair(_asset(value.get("base"), AssetId), _asset(value.get("quote"), AssetId))
    except _Fault:
        return None


class _Fault(Exception):
    """What is wrong with a JSON value, and its place within the value that is being decoded."""

    def __init__(self, fault: MarketIndexError | str, place: str = "") -> None:
        self.fault = fault
        self.place = place

    def under(self, place: str) -> _Fault:
        """Return the fault as seen from one level up."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        return _Fault(self.fault, f"{place}{joint}{self.place}")

    def error(self, kind: type[MarketIndexError]) -> MarketIndexError:
        """Return it as an error of the library: of its own kind, or of `kind` if the shape is wrong."""
        error = kind(self.fault) if isinstance(self.fault, str) else self.fault
        return error.at(self.place) if self.place else error


# Text to value


@frozen(repr=False)
class _Number:
    """A JSON number that is no integer, or one too long to be valid: kept as it was written."""

    text: str

    def __repr__(self) -> str:
        return self.text


@frozen
class _RepeatedKey:
    """A JSON object in which a key repeats."""

    key: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _RepeatedKey:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    counts = Counter(key for key, _ in pairs)
    return _RepeatedKey(next(key for key, count in counts.items() if count > 1))


def _integer(text: str) -> int | _Number:
    return int(text) if len(text) <= _MAX_INTEGER_DIGITS else _Number(text)


_DECODER: Final = json.JSONDecoder(parse_float=_Number, parse_constant=_Number)
_CAREFUL_DECODER: Final = json.JSONDecoder(
    parse_float=_Number, parse_constant=_Number, parse_int=_integer, object_pairs_hook=_object
)


def _characters(text: object) -> str:
    if not isinstance(text, (bytes, bytearray, memoryview)):
        raise _Fault(f"must be bytes, got {type(text).__name__}: {safe_repr(text)}")
    try:
        return str(bytes(text), "utf-8")
    except UnicodeDecodeError as error:
        rest = error.object[error.start :]
        raise _Fault(f"must be UTF-8, but is not at byte {error.start}: {safe_repr(rest)}") from None
    except (ValueError, BufferError) as error:
        raise _Fault(f"cannot be read: {error}") from None


def _value(characters: str) -> Any:
    """Return the decoded value; of a key that repeats it has the last value."""
    try:
        return _DECODER.decode(characters)
    except (ValueError, RecursionError):
        # Either it is not JSON, or an integer has more digits than Python converts.
        return _value_with_repeated_keys(characters)


def _value_with_repeated_keys(characters: str) -> Any:
    """Return the decoded value, with a `_RepeatedKey` for each object in which a key repeats."""
    try:
        return _CAREFUL_DECODER.decode(characters)
    except json.JSONDecodeError as error:
        rest = characters[error.pos :]
        raise _Fault(f"must be JSON, but is not at character {error.pos}: {error.msg}: {safe_repr(rest)}") from None
    except RecursionError:
        raise _Fault(f"nested too deeply: {safe_repr(characters)}") from None


def _has_no_repeated_key(characters: str, value: dict[str, Any], strings: int) -> bool:
    """Whether a text has no key that repeats, and no unknown key in a level.

    Proof: two quotes delimit each string of the text, so it has at most half as many strings as quotes. The value
    accounts for its keys, for its values that are strings, and for `strings` more: at least so many are in its levels.
    If the text has no more than these, then none of them is a key that was lost when the value was decoded, or that is
    unknown.

    False means that it is not known.
    """
    strings += len(value) + sum(type(one) is str for one in value.values())
    return characters.count('"') == 2 * strings


# Value to order book


_KEYS: Final = {"base", "quote", "spot", "bids", "asks"}
_PRICE: Final = itemgetter("price")
_AMOUNT: Final = itemgetter("accumulated_liquidity")


def _order_book(value: Any) -> OrderBook:
    """Return the order book of a decoded value. Raises a `_Fault` or an error of the library that names the place."""
    try:
        pair = Pair(AssetId.parse(value["base"]), AssetId.parse(value["quote"]))
        _require_known_keys(value)
        bids, asks = _sides(value.get("bids", []), value.get("asks", []))
        return OrderBook(pair, bids, asks, value.get("spot"))
    except (MarketIndexError, AttributeError, KeyError, OverflowError, TypeError):
        _CONVERTER.structure(value, _OrderBookMessage)
        # Every part is valid by itself, so the error says that levels are out of order or both assets the same.
        raise


def _require_known_keys(value: dict[str, Any]) -> None:
    if not value.keys() <= _KEYS:
        raise KeyError


def _sides(bids: list[Any], asks: list[Any]) -> tuple[Levels, Levels]:
    """Return the levels of both sides, validated in columns. Unknown keys are found with those that repeat."""
    if type(bids) is not list or type(asks) is not list:
        raise TypeError
    levels = bids + asks
    prices, amounts = parse_prices(list(map(_PRICE, levels))), list(map(_AMOUNT, levels))
    # An array rejects what is not from 0 to 2^64-1.
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
    """PriceLevel of the contract."""

    price: Decimal
    accumulated_liquidity: int


@frozen
class _OrderBookMessage:
    """GetOrderBookResponse of the contract."""

    base: AssetId
    quote: AssetId
    spot: Decimal | None = None
    bids: tuple[_LevelMessage, ...] = ()
    asks: tuple[_LevelMessage, ...] = ()


@frozen
class _PairListMessage:
    """The answer of the pair-list endpoint."""

    pairs: tuple[PairInfo, ...]


@frozen
class _FreshnessMessage:
    """A line that commits the lines before it."""

    as_of: str | None
    published_at: datetime | None = None


_JSON_TYPES: Final = {
    dict: "an object",
    _RepeatedKey: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    _Number: "a number",
    type(None): "null",
}


def _require(value: object, json_type: type) -> None:
    if type(value) is json_type:
        return
    if isinstance(value, _RepeatedKey) and json_type is dict:
        raise _Fault(f"the key {safe_repr(value.key)} must not repeat")
    raise _Fault(f"must be {_JSON_TYPES[json_type]}, got {_JSON_TYPES[type(value)]}: {safe_repr(value)}")


def _structured_text(parse: Callable[[str], T], value: Any, _: object) -> T:
    """Structure what is a string on the wire."""
    _require(value, str)
    try:
        return parse(value)
    except MarketIndexError as error:
        raise _Fault(error) from None


def _amount(value: Any, _: object) -> int:
    if type(value) is not int or not 0 < value <= MAX_LIQUIDITY:
        is_number = type(value) in {int, _Number}
        given = safe_repr(value) if is_number else f"{_JSON_TYPES[type(value)]}: {safe_repr(value)}"
        raise _Fault(f"must be a whole number from 1 to 2^64-1, got {given}")
    return value


def _structured_array(structure: Callable[[Any, Any], T], value: Any, of_type: object) -> tuple[T, ...]:
    """Structure an array, each item by a function."""
    _require(value, list)
    items: list[T] = []
    for item in value:
        try:
            items.append(structure(item, of_type))
        except _Fault as fault:
            raise fault.under(f"[{len(items)}]") from None
    return tuple(items)


def _structured_object(structure: Callable[[Any, Any], T], value: Any, of_type: object) -> T:
    """Structure an object by the function that cattrs generated for a class."""
    _require(value, dict)
    try:
        return structure(value, of_type)
    except ClassValidationError as group:
        raise _first_fault(group) from None


def _first_fault(group: ClassValidationError) -> _Fault:
    """Return what is wrong with the first attribute, with its name as the place."""
    first = group.exceptions[0]
    if isinstance(first, ForbiddenExtraKeysError):
        return _Fault(f"unknown key {safe_repr(min(first.extra_fields))}")
    if isinstance(first, MarketIndexError):
        # Of the constructor: the attributes are valid one by one, but not together.
        return _Fault(first)
    name = next(note.name for note in first.__notes__ if isinstance(note, AttributeValidationNote))
    if isinstance(first, _Fault):
        return first.under(name)
    return _Fault("missing", name)


_asset: Final = partial(_structured_text, AssetId.parse)
_CONVERTER: Final = Converter()
_CONVERTER.register_structure_hook(AssetId, _asset)
_CONVERTER.register_structure_hook(Decimal, partial(_structured_text, parse_price))
_CONVERTER.register_structure_hook(int, _amount)
_CONVERTER.register_structure_hook(str, partial(_structured_text, str))
_CONVERTER.register_structure_hook(datetime, partial(_structured_text, parse_time))

# A class needs the hooks of its attributes.
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
