"""The JSON of the read API, both ways: the one place that knows the names on the wire.

Reading is strict: a missing or unknown key, a key twice, another type, a value out of range, levels out of order,
`NaN`, anything after the value, each is refused with one of the library's errors, which names the place
(`bids[3].price`) and the value. Whatever is read is right; no other exception escapes.

>>> from market_index import ADA, AssetId, OrderBook, Pair
>>> book = OrderBook.from_levels(Pair(ADA, AssetId(bytes(28), b"")), bids=[("0.50", 7)])
>>> text = order_book_to_json(book)
>>> text[text.index(b'"spot"') :]
b'"spot":null,"bids":[{"price":"0.5","accumulated_liquidity":7}],"asks":[]}'
>>> order_book_from_json(text) == book
True
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from attrs import frozen
from cattrs import AttributeValidationNote, ClassValidationError, Converter, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

from market_index.assets import AssetId
from market_index.errors import InvalidOrderBook, InvalidPairList, MarketIndexError, safe_repr
from market_index.levels import Columns, Levels, PriceLevel, Side, is_liquidity, trusted_level
from market_index.order_book import OrderBook, book_of_columns, columns, trusted_book
from market_index.pairs import Pair, PairInfo
from market_index.prices import parse_price, parse_prices, price_text

__all__ = [
    "error_to_json",
    "joined_pair_list",
    "order_book_as_written",
    "order_book_from_json",
    "order_book_to_json",
    "pair_info_to_json",
    "pair_list_from_json",
    "pair_list_to_json",
    "pair_named_in",
]

T = TypeVar("T")


def order_book_to_json(book: OrderBook, *, base: str | None = None, quote: str | None = None) -> bytes:
    """Return the answer of the order-book endpoint, one line of ASCII.

    `base` and `quote` stand in the place of the canonical identifiers, for an answer that echoes how they were asked.
    """
    bid_columns, ask_columns = columns(book, Side.BID), columns(book, Side.ASK)
    if isinstance(bid_columns, _UnreadColumns) and isinstance(ask_columns, _UnreadColumns) and base is quote is None:
        written = bid_columns.written
        # A book that was derived from it may have both of its sides, but for another spot price.
        if written is ask_columns.written and written.spot is book.spot:
            return written.text
    bids, asks = _levels_to_json(bid_columns), _levels_to_json(ask_columns)
    return (
        f'{{"base":{_text_to_json(book.pair.base if base is None else base)},'
        f'"quote":{_text_to_json(book.pair.quote if quote is None else quote)},'
        f'"spot":{_price_to_json(book.spot)},"bids":[{bids}],"asks":[{asks}]}}'
    ).encode("ascii")


def order_book_from_json(text: bytes | bytearray | memoryview) -> OrderBook:
    """Read an order book in the shape of the order-book endpoint's answer; `spot`, `bids` and `asks` may be absent.

    Levels must stand in the order of the contract, one a price.

    >>> order_book_from_json(b'{"base": "%s:", "quote": "ADA", "bids": [{"price": 0.5}]}' % (b"00" * 28))
    Traceback (most recent call last):
    market_index.errors.InvalidOrderBook: bids[0].accumulated_liquidity: missing

    Raises `InvalidAssetId`, `InvalidPrice` or `InvalidOrderBook`, all of them `MarketIndexError` and `ValueError`.
    """
    book = _read_in_columns(text)
    if book is not None:
        return book
    message = _read(text, _OrderBookMessage, InvalidOrderBook)
    return OrderBook(Pair(message.base, message.quote), message.bids, message.asks, message.spot)


def order_book_as_written(text: bytes) -> OrderBook:
    """Return the book that `order_book_to_json` wrote as this text, for which the caller vouches.

    Pair and spot price are read and checked at once, the levels when somebody looks at them; until then the text
    itself is what is written again. So a program that passes books on pays for those that it looks at. A text that
    anybody else may have written, or damaged, is for `order_book_from_json`.

    >>> from market_index import ADA, AssetId, OrderBook, Pair
    >>> text = order_book_to_json(OrderBook.from_levels(Pair(ADA, AssetId(bytes(28), b"")), bids=[("0.50", 7)]))
    >>> book = order_book_as_written(text)
    >>> order_book_to_json(book) is text, book == order_book_from_json(text)
    (True, True)

    Raises as `order_book_from_json` does for a text that does not begin like one of `order_book_to_json`; for one that
    goes on otherwise, whoever looks at the levels is told.
    """
    head = _HEAD(text) if type(text) is bytes else None
    if head is None:
        return order_book_from_json(text)
    base, quote, spot = head.groups()
    pair = Pair(AssetId.parse(str(base, "utf-8")), AssetId.parse(str(quote, "utf-8")))
    written = _Written(text)
    book = trusted_book(
        pair,
        _UnreadColumns(written, Side.BID),
        _UnreadColumns(written, Side.ASK),
        None if spot is None else str(spot, "utf-8"),
    )
    written.spot = book.spot
    return book


def pair_named_in(text: bytes | bytearray | memoryview) -> Pair | None:
    """Return the pair that an order book in JSON names, even where the book is refused; None where it names none.

    >>> str(pair_named_in(b'{"base": "ADA", "quote": "%s:", "bids": "none"}' % (b"00" * 28)))
    'ADA/00000000000000000000000000000000000000000000000000000000:'
    """
    try:
        value = _decoded(text)
        _require(value, dict)
        return Pair(_asset(value.get("base"), AssetId), _asset(value.get("quote"), AssetId))
    except _Refusal:
        return None


def pair_list_to_json(pair_infos: Iterable[PairInfo]) -> bytes:
    """Return the answer of the pair-list endpoint, one line of ASCII, the pairs in the order given."""
    return joined_pair_list(map(pair_info_to_json, pair_infos))


def pair_info_to_json(pair_info: PairInfo) -> bytes:
    """Return one entry of the pair list."""
    base, quote = _text_to_json(pair_info.base), _text_to_json(pair_info.quote)
    return f'{{"base":{base},"quote":{quote},"last_spot":{_price_to_json(pair_info.last_spot)}}}'.encode("ascii")


def joined_pair_list(entries: Iterable[bytes]) -> bytes:
    """Return the answer of the pair-list endpoint, of entries (one or more to a piece, with commas between them)."""
    # The brackets go to the outer pieces, so that what is long is copied once.
    pieces = list(entries) or [b""]
    pieces[0] = b'{"pairs":[' + pieces[0]
    pieces[-1] += b"]}"
    return b",".join(pieces)


def pair_list_from_json(text: bytes | bytearray | memoryview) -> tuple[PairInfo, ...]:
    """Read a pair list in the shape of the pair-list endpoint's answer, its pairs in any order, none twice.

    Raises `InvalidAssetId`, `InvalidPrice` or `InvalidPairList`, all of them `MarketIndexError` and `ValueError`.
    """
    message = _read(text, _PairListMessage, InvalidPairList)
    seen: set[Pair] = set()
    for position, info in enumerate(message.pairs):
        if info.base == info.quote:
            raise InvalidPairList(f"pairs[{position}]: base and quote are the same asset: {safe_repr(str(info.base))}")
        if info.pair in seen:
            raise InvalidPairList(f"pairs[{position}]: the pair {info.pair} stands in the list twice")
        seen.add(info.pair)
    return message.pairs


def error_to_json(message: str) -> bytes:
    """Return the error body of the contract, one line of ASCII.

    >>> error_to_json("Not Found")
    b'{"error":"Not Found"}'
    """
    return f'{{"error":{_text_to_json(message)}}}'.encode("ascii")


@frozen
class _OrderBookMessage:
    """GetOrderBookResponse of the contract."""

    base: AssetId
    quote: AssetId
    spot: Decimal | None = None
    bids: Levels = ()
    asks: Levels = ()


@final
class _Written:
    """A book as it was written, of which the levels are read once somebody looks at them."""

    __slots__ = ("_book", "spot", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.spot: Decimal | None = None
        self._book: OrderBook | None = None

    def columns(self, side: Side) -> Columns:
        """Return a side as it stands in the text. Raises as `order_book_from_json` does."""
        if self._book is None:
            self._book = order_book_from_json(self.text)
        return columns(self._book, side)


@final
class _UnreadColumns(Columns):
    """One side of a book as it was written."""

    __slots__ = ("_side", "written")

    def __init__(self, written: _Written, side: Side) -> None:
        self.written = written
        self._side = side
        self._levels = None

    if not TYPE_CHECKING:  # else any name would seem to be an attribute

        def __getattr__(self, name: str) -> object:
            """Fill the slots of the columns, which are empty until somebody looks at one."""
            if name not in {"prices", "liquidities"}:
                raise AttributeError(f"columns have no attribute {name!r}", name=name, obj=self)
            read = self.written.columns(self._side)
            self.prices, self.liquidities = read.prices, read.liquidities
            return getattr(self, name)


@frozen
class _PairListMessage:
    """The answer of the pair-list endpoint."""

    pairs: tuple[PairInfo, ...]


@frozen(repr=False)
class _Number:
    """A JSON number that is no integer, or one too long to be any of ours: kept as it was written."""

    text: str

    def __repr__(self) -> str:
        return self.text


@frozen
class _RepeatedKey:
    """A JSON object in which a key stands twice."""

    key: str


class _Refusal(Exception):
    """What is wrong with a JSON value, and the place of it within the value that is being read."""

    def __init__(self, fault: MarketIndexError | str, place: str = "") -> None:
        super().__init__(fault, place)
        self.fault = fault
        self.place = place

    def under(self, place: str) -> _Refusal:
        """Return the refusal as seen from one level up."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        return _Refusal(self.fault, f"{place}{joint}{self.place}")

    def error(self, kind: type[MarketIndexError]) -> MarketIndexError:
        """Return it as an error of the library: of its own kind, or of `kind` where the shape was wrong."""
        error = kind(self.fault) if isinstance(self.fault, str) else self.fault
        return error.at(self.place) if self.place else error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _RepeatedKey:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    return next(_RepeatedKey(key) for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add returns None, which is false


def _integer(text: str) -> int | _Number:
    return int(text) if len(text) <= 40 else _Number(text)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_Number, parse_constant=_Number)
_PATIENT_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_Number, parse_constant=_Number, parse_int=_integer
)
# What order_book_to_json begins with.
_HEAD: Final = re.compile(
    rb'\{"base":"([0-9A-Za-z:]*)","quote":"([0-9A-Za-z:]*)","spot":(?:null|"([0-9.]*)"),"bids":\['
).match

_PLAIN_DECODER: Final = json.JSONDecoder()
_ORDER_BOOK_KEYS: Final = {"base", "quote", "spot", "bids", "asks"}
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


def _require_bytes(text: object) -> None:
    if not isinstance(text, (bytes, bytearray, memoryview)):
        raise _Refusal(f"must be bytes, not {type(text).__name__}: {safe_repr(text)}")


def _decoded(text: bytes | bytearray | memoryview) -> Any:
    _require_bytes(text)
    try:
        characters = bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Refusal(f"not UTF-8 at byte {error.start}: {safe_repr(error.object[error.start :][:80])}") from None
    except ValueError as error:
        raise _Refusal(f"cannot be read: {error}") from None
    try:
        try:
            return _DECODER.decode(characters)
        except json.JSONDecodeError:
            raise
        except ValueError:
            # An integer of more digits than Python converts: read it as text, so that its place can be told.
            return _PATIENT_DECODER.decode(characters)
    except json.JSONDecodeError as error:
        rest = characters[error.pos : error.pos + 80]
        raise _Refusal(f"not JSON at character {error.pos}: {error.msg}: {safe_repr(rest)}") from None
    except RecursionError:
        raise _Refusal(f"nested too deeply: {safe_repr(characters[:80])}") from None


def _text_to_json(value: str | AssetId) -> str:
    # The text of an asset has no character that JSON would escape.
    return json.dumps(value) if isinstance(value, str) else f'"{value}"'


def _price_to_json(price: Decimal | None) -> str:
    return "null" if price is None else f'"{price_text(price)}"'


def _levels_to_json(side: Columns) -> str:
    return ",".join(
        [
            f'{{"price":"{price_text(price)}","accumulated_liquidity":{liquidity}}}'
            for price, liquidity in zip(side.prices, side.liquidities, strict=True)
        ]
    )


def _read(text: bytes | bytearray | memoryview, message: type[T], kind: type[MarketIndexError]) -> T:
    try:
        return _converter.structure(_decoded(text), message)
    except _Refusal as refusal:
        raise refusal.error(kind) from None


def _require(value: object, json_type: type) -> None:
    if type(value) is json_type:
        return
    if isinstance(value, _RepeatedKey) and json_type is dict:
        raise _Refusal(f"the key {safe_repr(value.key)} stands twice")
    raise _Refusal(f"must be {_JSON_TYPES[json_type]}, not {_JSON_TYPES[type(value)]}: {safe_repr(value)}")


def _text_hook(parse: Callable[[str], T]) -> Callable[[Any, object], T]:
    """Return the hook of a type that is a string on the wire."""

    def structure(value: Any, _: object) -> T:
        _require(value, str)
        try:
            return parse(value)
        except MarketIndexError as error:
            raise _Refusal(error) from None

    return structure


def _array_hook(item_type: type[T]) -> Callable[[Any, object], tuple[T, ...]]:
    """Return the hook of an array of items that are objects."""
    item_hook = _converter.get_structure_hook(item_type)

    def structure(value: Any, _: object) -> tuple[T, ...]:
        _require(value, list)
        items: list[T] = []
        try:
            for item in value:
                items.append(item_hook(item, item_type))  # noqa: PERF401  # the length tells the place of a refusal
        except _Refusal as refusal:
            raise refusal.under(f"[{len(items)}]") from None
        return tuple(items)

    return structure


def _object_hook(cls: type[T]) -> Callable[[Any, object], T]:
    """Return the hook of a class whose attributes are the keys of a JSON object."""
    generated = make_dict_structure_fn(
        cls, _converter, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True
    )

    def structure(value: Any, _: object) -> T:
        _require(value, dict)
        try:
            return generated(value, cls)
        except ClassValidationError as group:
            raise _first_refusal(group) from None

    return structure


def _first_refusal(group: ClassValidationError) -> _Refusal:
    first = group.exceptions[0]
    if isinstance(first, ForbiddenExtraKeysError):
        return _Refusal(f"unknown key {safe_repr(min(first.extra_fields))}")
    place = next(note.name for note in first.__notes__ if isinstance(note, AttributeValidationNote))
    if isinstance(first, _Refusal):
        return first.under(place)
    return _Refusal("missing", place)


def _read_in_columns(text: bytes | bytearray | memoryview) -> OrderBook | None:
    """Return the book that stands in the text, or None where something is unusual enough to be looked at one by one.

    What this reads, the converter reads as the same book. It makes the same checks, but of all levels at once: in
    loops of the interpreter's own, not in ours.
    """
    try:
        _require_bytes(text)
        characters = str(text, "utf-8")
        value = _PLAIN_DECODER.decode(characters)
        bids, asks = value.get("bids", []), value.get("asks", [])
        pair = Pair(AssetId.parse(value["base"]), AssetId.parse(value["quote"]))
        book = book_of_columns(pair, _columns(bids), _columns(asks), value.get("spot"))
    except (_Refusal, ValueError, TypeError, KeyError, AttributeError, OverflowError, BufferError, RecursionError):
        # Whatever it is, it is found once more, and named, by looking at one after the other.
        return None
    # A level has three strings at least, so that every quote is accounted for when there are no more of them: there is
    # no key that we do not know, and none that stands twice, of which the value shows no trace. An escape could hide
    # a quote; what we read has no need of any.
    strings = len(value) + list(map(type, value.values())).count(str) + 3 * (len(bids) + len(asks))
    if characters.count('"') == 2 * strings and "\\" not in characters and value.keys() <= _ORDER_BOOK_KEYS:
        return book
    return None


def _columns(levels: Any) -> Columns:
    if type(levels) is not list:
        raise TypeError("not an array")
    liquidities = [level["accumulated_liquidity"] for level in levels]
    # An array refuses whatever is not from 0 to 2^64-1.
    if levels and (set(map(type, liquidities)) != {int} or not all(liquidities)):
        raise ValueError("not liquidities alone")
    return Columns(tuple(parse_prices([level["price"] for level in levels])), array("Q", liquidities))


def _level(value: Any, _: object) -> PriceLevel:
    """Read a level. By hand, because there are thousands to a book: twice as fast as the generated hook."""
    _require(value, dict)
    for key in ("price", "accumulated_liquidity"):
        if key not in value:
            raise _Refusal("missing", key)
    if len(value) > 2:
        raise _Refusal(f"unknown key {safe_repr(min(value.keys() - {'price', 'accumulated_liquidity'}))}")
    try:
        price = _price(value["price"], Decimal)
    except _Refusal as refusal:
        raise refusal.under("price") from None
    liquidity = value["accumulated_liquidity"]
    if not is_liquidity(liquidity):
        is_number = type(liquidity) in {int, _Number}
        given = safe_repr(liquidity) if is_number else f"{_JSON_TYPES[type(liquidity)]}: {safe_repr(liquidity)}"
        raise _Refusal(f"must be a whole number from 1 to 2^64-1, not {given}", "accumulated_liquidity")
    return trusted_level(price, liquidity)


_asset = _text_hook(AssetId.parse)
_price = _text_hook(parse_price)
_converter: Final = Converter()
_converter.register_structure_hook(AssetId, _asset)
_converter.register_structure_hook(Decimal, _price)
_converter.register_structure_hook(PriceLevel, _level)
_converter.register_structure_hook(PairInfo, _object_hook(PairInfo))
_converter.register_structure_hook_func(lambda shape: shape == Levels, _array_hook(PriceLevel))
_converter.register_structure_hook_func(lambda shape: shape == tuple[PairInfo, ...], _array_hook(PairInfo))
_converter.register_structure_hook(_OrderBookMessage, _object_hook(_OrderBookMessage))
_converter.register_structure_hook(_PairListMessage, _object_hook(_PairListMessage))
