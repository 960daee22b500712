"""The hooks by which cattrs structures and unstructures the values of the library as the JSON of the contract.

Theory of operation
    One strict converter structures all that the library decodes. The attributes of a class are the keys of its JSON.
    A converter of a user gets only its hooks for the values, so that nothing else of that converter changes.

    The prices and the amounts of a book are validated as whole columns, at C speed. If a check fails, the strict
    converter walks the value to find the fault. The errors of cattrs contain its place; `first_fault` makes an error of
    the library from them.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from operator import itemgetter
from typing import Any, Final, TypeAlias, get_args, get_origin

from attrs import fields, frozen, has, resolve_types
from cattrs import (
    AttributeValidationNote,
    BaseValidationError,
    Converter,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn_from_attrs, override

from market_index.assets import AssetId
from market_index.errors import MarketIndexError, safe_repr
from market_index.freshness import Freshness, parse_time
from market_index.index import MarketIndex
from market_index.levels import MAX_LIQUIDITY, Levels, PriceLevel, levels_of_columns
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import Pair, PairInfo
from market_index.prices import Side, parse_price, parse_prices, price_text, to_price_or_ratio, to_ratio
from market_index.wire.encode import freshness_to_json, pair_list_to_json, pair_to_json
from market_index.wire.json_value import Fault, require_type, shown

Hook: TypeAlias = Callable[[Any, Any], Any]


def configure_converter(converter: Converter) -> None:
    """Configure a converter of cattrs, so that your own classes can have fields with values of the library.

    `AssetId`, `Pair`, `PairInfo`, `PriceLevel`, `OrderBook` and `Freshness` become the JSON of the contract, and are
    read as strictly as by `order_book_from_json`. An `Order`, a `MarketIndex` and `Levels`, which the contract does not
    have, become objects with the names of the arguments of their constructors. Unknown keys are an error if the
    converter has `forbid_extra_keys`. No other type changes.

    You can call it before or after `cattrs.preconf` configures the converter. Call it again on a copy of the converter
    that has other settings.

    >>> from attrs import frozen
    >>> from cattrs.preconf.json import make_converter
    >>> from market_index import ADA, AssetId, Pair
    >>> @frozen
    ... class Watched:
    ...     pair: Pair
    ...     level: PriceLevel
    >>> converter = make_converter()
    >>> configure_converter(converter)
    >>> watched = Watched(Pair(AssetId(bytes(28), b""), ADA), PriceLevel("0.50", 7))
    >>> converter.unstructure(watched)["level"]
    {'price': '0.5', 'accumulated_liquidity': 7}
    >>> converter.loads(converter.dumps(watched), Watched) == watched
    True
    """
    strict = strict_converter(ignore_unknown=not converter.forbid_extra_keys)
    for of_type, unstructure in _UNSTRUCTURE.items():
        structure = strict.get_structure_hook(of_type)
        if not converter.detailed_validation:
            structure = partial(_structured_briefly, structure)
        converter.register_structure_hook(of_type, structure)
        converter.register_unstructure_hook(of_type, unstructure)


@cache
def strict_converter(*, ignore_unknown: bool = False) -> Converter:
    """Return the converter of all that the library decodes. Do not register hooks with it."""
    converter = Converter(forbid_extra_keys=not ignore_unknown)
    for of_type, parse in _TEXTS.items():
        converter.register_structure_hook(of_type, partial(_structured_text, parse))
    converter.register_structure_hook(int, partial(_structured_amount, 0))
    converter.register_structure_hook_factory(_is_object, _object_hook)
    converter.register_structure_hook_factory(_is_array, _array_hook)
    least = override(struct_hook=partial(_structured_amount, 1))
    converter.register_structure_hook(PriceLevel, _object_hook(PriceLevel, converter, accumulated_liquidity=least))
    find_fault = converter.get_structure_hook(_OrderBookObject)
    converter.register_structure_hook(OrderBook, partial(_structured_order_book, find_fault, ignore_unknown))
    return converter


def first_fault(error: Exception, kind: type[MarketIndexError]) -> Exception:
    """Return the first fault among errors of cattrs, with its place, as an error of the library.

    It has the class `kind` if a key is missing or unknown, or a value has a wrong JSON type.
    """
    place = ""
    while isinstance(error, BaseValidationError):
        error = error.exceptions[0]
        for note in getattr(error, "__notes__", ()):
            if isinstance(note, AttributeValidationNote):
                place += f".{note.name}"
            elif isinstance(note, IterableValidationNote):
                place += f"[{note.index}]"
    if isinstance(error, ForbiddenExtraKeysError):
        error = kind(f"unknown key {safe_repr(min(error.extra_fields, key=str))}")
    elif isinstance(error, KeyError):
        error = kind("missing")
    elif isinstance(error, Fault):
        error = kind(str(error))
    return error.at(place.removeprefix(".")) if place and isinstance(error, MarketIndexError) else error


# The objects whose keys are not the attributes of the value


@frozen
class _OrderBookObject:
    """`GetOrderBookResponse` of the contract. It is structured only to find a fault."""

    base: AssetId
    quote: AssetId
    spot: Decimal | None = None
    bids: tuple[PriceLevel, ...] = ()
    asks: tuple[PriceLevel, ...] = ()


@frozen
class _PairInfoObject:
    """An entry of the pair list."""

    base: AssetId
    quote: AssetId
    last_spot: Decimal | None


@frozen(kw_only=True)
class FreshnessObject:
    """A freshness, and the start of a commit line."""

    as_of: str | None
    published_at: datetime | None = None


@frozen(kw_only=True)
class _IndexObject(FreshnessObject):
    books: tuple[OrderBook, ...]


@frozen
class _LevelsObject:
    """The levels of one side, without their book."""

    side: Side
    levels: tuple[PriceLevel, ...]


_OBJECTS: Final[dict[type, type]] = {
    PairInfo: _PairInfoObject,
    Freshness: FreshnessObject,
    MarketIndex: _IndexObject,
    Levels: _LevelsObject,
}


# From JSON


def _is_object(of_type: Any) -> bool:
    # The collections are no classes of attrs.
    return has(of_type) or of_type in {MarketIndex, Levels}


def _object_hook(of_type: Any, converter: Converter, **overrides: Any) -> Hook:
    attributes = list(fields(resolve_types(_OBJECTS.get(of_type, of_type))))
    structure = make_dict_structure_fn_from_attrs(attributes, of_type, converter, **overrides)
    return partial(_structured_object, structure)


def _structured_object(structure: Callable[[Any], Any], value: Any, _: object) -> Any:
    require_type(value, dict)
    return structure(value)


def _is_array(of_type: Any) -> bool:
    return get_origin(of_type) is tuple


def _array_hook(of_type: Any, converter: Converter) -> Hook:
    item_type = get_args(of_type)[0]
    return partial(_structured_array, converter.get_structure_hook(item_type), item_type)


def _structured_array(structure: Hook, item_type: object, value: Any, _: object) -> tuple[Any, ...]:
    """Structure the items of an array. It stops at the first fault, because a hostile array may have very many."""
    require_type(value, list)
    items: list[Any] = []
    try:
        for item in value:
            items.append(structure(item, item_type))  # noqa: PERF401  # its length is the place of a fault
    except Exception as error:  # noqa: BLE001  # it is raised again, in a group
        error.add_note(IterableValidationNote(f"Structuring an array @ index {len(items)}", len(items), item_type))
        raise IterableValidationError("While structuring an array", [error], tuple) from None
    return tuple(items)


def _structured_text(parse: Callable[[str], object], value: Any, _: object) -> object:
    require_type(value, str)
    return parse(value)


def _structured_amount(least: int, value: Any, _: object) -> int:
    if type(value) is not int or not least <= value <= MAX_LIQUIDITY:
        raise Fault(f"must be a whole number from {least} to 2^64-1, got {shown(value)}")
    return value


def _structured_briefly(structure: Hook, value: Any, of_type: object) -> Any:
    """Raise the first fault alone, as a converter without detailed validation does. pydantic takes only such errors."""
    try:
        return structure(value, of_type)
    except BaseValidationError as error:
        raise first_fault(error, Fault) from None


def _side(text: str) -> Side:
    try:
        return Side(text)
    except ValueError:
        raise Fault(f"must be bid or ask, got {safe_repr(text)}") from None


def _price_or_ratio(text: str) -> Decimal | Fraction:
    return to_price_or_ratio(to_ratio(text))


_TEXTS: Final[dict[Any, Callable[[str], object]]] = {
    AssetId: AssetId.parse,
    Decimal: parse_price,
    Decimal | Fraction: _price_or_ratio,
    Side: _side,
    datetime: parse_time,
    str: str,
}
"""What is a string in JSON, and how it is parsed."""


# From JSON to an order book


_KEYS: Final = {"base", "quote", "spot", "bids", "asks"}
_PRICE: Final = itemgetter("price")
_AMOUNT: Final = itemgetter("accumulated_liquidity")


def _structured_order_book(find_fault: Hook, ignore_unknown: bool, value: Any, _: object) -> OrderBook:  # noqa: FBT001  # bound by `partial`
    try:
        pair = Pair(AssetId.parse(value["base"]), AssetId.parse(value["quote"]))
        bids, asks, spot = value.get("bids", []), value.get("asks", []), value.get("spot")
        if not ignore_unknown:
            _require_known_keys(value, bids + asks)
        return OrderBook(pair, *_sides(bids, asks), spot if spot is None else parse_price(spot))
    except (MarketIndexError, AttributeError, KeyError, OverflowError, TypeError):
        find_fault(value, _OrderBookObject)
        # Each part is valid by itself: the error is about the order of levels, or about two equal assets.
        raise


def _require_known_keys(value: dict[str, Any], levels: list[dict[str, Any]]) -> None:
    # A level has at least its two keys: `_sides` requires them.
    if not value.keys() <= _KEYS or not set(map(len, levels)) <= {2}:
        raise KeyError


def _sides(bids: Any, asks: Any) -> tuple[Levels, Levels]:
    """Return the levels of both sides, validated as columns."""
    if type(bids) is not list or type(asks) is not list:
        raise TypeError
    levels = bids + asks
    prices, keys = parse_prices(list(map(_PRICE, levels)))
    amounts = list(map(_AMOUNT, levels))
    # The array rejects amounts that are not from 0 to 2^64-1.
    column = array("Q", amounts)
    if levels and not (set(map(type, amounts)) == {int} and all(amounts)):
        raise TypeError
    best_ask = len(bids)
    return (
        levels_of_columns(Side.BID, prices[:best_ask], column[:best_ask], keys and keys[:best_ask]),
        levels_of_columns(Side.ASK, prices[best_ask:], column[best_ask:], keys and keys[best_ask:]),
    )


# To JSON


def _level_to_json(level: PriceLevel) -> dict[str, Any]:
    return {"price": price_text(level.price), "accumulated_liquidity": level.accumulated_liquidity}


def _order_to_json(order: Order) -> dict[str, Any]:
    price = price_text(order.price) if isinstance(order.price, Decimal) else str(order.price)
    pair = json.loads(pair_to_json(order.pair))
    return {"pair": pair, "side": order.side.value, "price": price, "amount": order.amount}


def _index_to_json(index: MarketIndex) -> dict[str, Any]:
    return {"books": [book.to_dict() for book in index.values()], **json.loads(freshness_to_json(index.freshness))}


_UNSTRUCTURE: Final[dict[type, Callable[[Any], Any]]] = {
    AssetId: str,
    Pair: lambda pair: json.loads(pair_to_json(pair)),
    PairInfo: lambda info: json.loads(pair_list_to_json([info]))["pairs"][0],
    PriceLevel: _level_to_json,
    Levels: lambda levels: {"side": levels.side.value, "levels": list(map(_level_to_json, levels))},
    OrderBook: OrderBook.to_dict,
    Order: _order_to_json,
    Freshness: lambda freshness: json.loads(freshness_to_json(freshness)),
    MarketIndex: _index_to_json,
}
"""The JSON of a value as a converter returns it. The texts have one home, `encode`."""
