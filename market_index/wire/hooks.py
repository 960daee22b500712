"""The hooks by which cattrs structures and unstructures the values of the library as the JSON of the contract.

Theory of operation
    The prices and the amounts of a book are validated as whole columns, at C speed. If a check fails, the functions
    that cattrs generates walk the value to find the fault, and their errors say where it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeAlias

from attrs import frozen
from cattrs import Converter, IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, override

from market_index.assets import AssetId
from market_index.errors import MarketIndexError, safe_repr
from market_index.freshness import Freshness, format_time, parse_time
from market_index.index import MarketIndex
from market_index.levels import MAX_LIQUIDITY, Levels, PriceLevel, levels_of_columns
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import Pair, PairInfo
from market_index.prices import Side, parse_price, parse_prices, price_text, to_price_or_ratio, to_ratio
from market_index.wire.json_value import Fault, require_type, shown

Hook: TypeAlias = Callable[[Any, Any], Any]


def configure_converter(converter: Converter) -> None:
    """Configure a converter of cattrs for the values of this library, as fields of your own classes.

    They are the JSON of the contract. Unknown keys are an error with `forbid_extra_keys`, and otherwise ignored. It
    works with the converters of `cattrs.preconf` for JSON, before or after their own configuration.

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
    asset = text(AssetId.parse)
    spot = optional(parse_price)
    level = generated(converter, PriceLevel, price=text(parse_price), accumulated_liquidity=amount(1))
    body = {"base": asset, "quote": asset, "spot": spot, "bids": array_of(level), "asks": array_of(level)}
    book = partial(_order_book, generated(converter, _OrderBookMessage, **body), converter.forbid_extra_keys)
    times = {"as_of": optional(str), "published_at": optional(parse_time)}
    order = {"base": asset, "quote": asset, "side": text(_side), "price": text(_price_or_ratio), "amount": amount(0)}
    for of_type, structure, unstructure in (
        (AssetId, asset, str),
        (Pair, generated(converter, Pair, base=asset, quote=asset), _pair),
        (PairInfo, generated(converter, _PairMessage, base=asset, quote=asset, last_spot=spot), _pair_info),
        (PriceLevel, level, _level),
        (OrderBook, book, _book),
        (Order, generated(converter, _OrderMessage, **order), _order),
        (Freshness, generated(converter, Freshness, **times), _freshness),
        (MarketIndex, generated(converter, _IndexMessage, order_books=array_of(book), **times), _index),
    ):
        converter.register_structure_hook(of_type, structure)
        converter.register_unstructure_hook(of_type, unstructure)


# What the hooks are made of


def generated(converter: Converter, shape: Any, **hooks: Hook) -> Hook:
    """Return the hook of an object whose keys are the attributes of a class. A message becomes what it stands for."""
    parts: Any = {name: override(struct_hook=hook) for name, hook in hooks.items()}
    structure = make_dict_structure_fn(shape, converter, **parts)

    def hook(value: Any, _: object) -> Any:
        require_type(value, dict)
        found = structure(value, shape)
        return found.value() if isinstance(found, Message) else found

    return hook


def array_of(structure: Hook) -> Hook:
    """Return the hook of an array. It stops at the first fault."""

    def hook(value: Any, _: object) -> tuple[Any, ...]:
        require_type(value, list)
        items: list[Any] = []
        try:
            for item in value:
                items.append(structure(item, None))  # noqa: PERF401  # its length is the place of a fault
        except Exception as error:  # noqa: BLE001  # it is raised again
            error.add_note(IterableValidationNote(f"Structuring an array @ index {len(items)}", len(items), Any))
            raise IterableValidationError("While structuring an array", [error], tuple) from None
        return tuple(items)

    return hook


def text(parse: Callable[[str], object]) -> Hook:
    """Return the hook of a value that is a string on the wire."""

    def hook(value: Any, _: object) -> object:
        require_type(value, str)
        return parse(value)

    return hook


def optional(parse: Callable[[str], object]) -> Hook:
    """Return the hook of a value that is a string on the wire, or null."""
    of_text = text(parse)
    return lambda value, _: None if value is None else of_text(value, None)


def amount(least: int) -> Hook:
    """Return the hook of a number from `least` to 2^64-1."""

    def hook(value: Any, _: object) -> int:
        if type(value) is not int or not least <= value <= MAX_LIQUIDITY:
            raise Fault(f"must be a whole number from {least} to 2^64-1, got {shown(value)}")
        return value

    return hook


def _side(name: str) -> Side:
    try:
        return Side(name)
    except ValueError:
        raise Fault(f"must be bid or ask, got {safe_repr(name)}") from None


def _price_or_ratio(number: str) -> Decimal | Fraction:
    return to_price_or_ratio(to_ratio(number))


class Message:
    """Base class of the objects whose keys are not the attributes of a value."""

    __slots__ = ()

    def value(self) -> Any:
        """Return what it stands for."""
        raise NotImplementedError


@frozen
class _OrderBookMessage:
    """`GetOrderBookResponse` of the contract. It is structured to find a fault."""

    base: AssetId
    quote: AssetId
    spot: Decimal | None = None
    bids: tuple[PriceLevel, ...] = ()
    asks: tuple[PriceLevel, ...] = ()


@frozen
class _PairMessage(Message):
    """An entry of the pair list."""

    base: AssetId
    quote: AssetId
    last_spot: Decimal | None

    def value(self) -> PairInfo:
        return PairInfo(self.base, self.quote, self.last_spot)


@frozen
class _OrderMessage(Message):
    base: AssetId
    quote: AssetId
    side: Side
    price: Decimal | Fraction
    amount: int

    def value(self) -> Order:
        return Order(Pair(self.base, self.quote), self.side, self.price, self.amount)


@frozen
class _IndexMessage(Message):
    order_books: tuple[OrderBook, ...]
    as_of: str | None = None
    published_at: datetime | None = None

    def value(self) -> MarketIndex:
        return MarketIndex(self.order_books, self.as_of, self.published_at)


# From a value to JSON


def _spot(price: Decimal | None) -> str | None:
    return None if price is None else price_text(price)


def _pair(pair: Pair | PairInfo) -> dict[str, Any]:
    return {"base": str(pair.base), "quote": str(pair.quote)}


def _pair_info(info: PairInfo) -> dict[str, Any]:
    return _pair(info) | {"last_spot": _spot(info.last_spot)}


def _level(level: PriceLevel) -> dict[str, Any]:
    return {"price": price_text(level.price), "accumulated_liquidity": level.accumulated_liquidity}


def _levels(levels: Levels) -> list[dict[str, Any]]:
    columns = zip(map(price_text, levels.prices), levels.amounts, strict=True)
    return [{"price": price, "accumulated_liquidity": amount} for price, amount in columns]


def _book(book: OrderBook) -> dict[str, Any]:
    return _pair(book.pair) | {"spot": _spot(book.spot), "bids": _levels(book.bids), "asks": _levels(book.asks)}


def _order(order: Order) -> dict[str, Any]:
    price = price_text(order.price) if isinstance(order.price, Decimal) else str(order.price)
    return _pair(order.pair) | {"side": order.side.value, "price": price, "amount": order.amount}


def _freshness(of: Freshness | MarketIndex) -> dict[str, Any]:
    return {"as_of": of.as_of, "published_at": None if of.published_at is None else format_time(of.published_at)}


def _index(index: MarketIndex) -> dict[str, Any]:
    return {"order_books": [_book(book) for book in index.values()]} | _freshness(index)


# From JSON to an order book


_KEYS: Final = {"base", "quote", "spot", "bids", "asks"}
_PRICE: Final = itemgetter("price")
_AMOUNT: Final = itemgetter("accumulated_liquidity")


def _order_book(fault_in: Hook, strict: bool, value: Any, _: object) -> OrderBook:  # noqa: FBT001  # bound by `partial`
    try:
        pair = Pair(AssetId.parse(value["base"]), AssetId.parse(value["quote"]))
        if strict:
            _require_known_keys(value)
        return OrderBook(pair, *_sides(value.get("bids", []), value.get("asks", [])), value.get("spot"))
    except (MarketIndexError, AttributeError, KeyError, OverflowError, TypeError):
        fault_in(value, None)
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
