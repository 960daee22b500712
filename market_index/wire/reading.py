"""Strict readers of JSON values, which report the first fault with its place.

Theory of operation
    A reader takes a decoded JSON value and returns what it means, or raises an error of the library. Readers of arrays
    and objects add their position or key as a note to an error that passes them; `located` makes the place of the
    notes. Fields are read in the order of the contract, then come unknown keys, then what concerns several fields.

    The prices and the amounts of a book are validated as whole columns, at C speed. If a check fails, the readers of
    its parts walk the value to find the fault.
"""

from __future__ import annotations

from array import array as column_of
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from operator import itemgetter
from typing import Any, Final, TypeAlias

from market_index.assets import AssetId
from market_index.errors import MarketIndexError, safe_repr
from market_index.freshness import Freshness, parse_time
from market_index.index import MarketIndex
from market_index.levels import MAX_LIQUIDITY, Levels, PriceLevel, levels_of_columns
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import Pair, PairInfo
from market_index.prices import Side, parse_price, parse_prices, to_price_or_ratio, to_ratio
from market_index.wire.json_value import Fault, require_type, shown

Read: TypeAlias = Callable[[Any], Any]
"""Returns what a JSON value means."""

CHANGES: Final = "the changes of an order book"
PAIR_LIST: Final = "a pair list"
COMMIT: Final = "a freshness, or a commit line"


def located(error: MarketIndexError, kind: type[MarketIndexError] = Fault) -> MarketIndexError:
    """Return an error of a reader with its place; a fault in the shape of the JSON has the class `kind`."""
    place = "".join(reversed(getattr(error, "__notes__", ()))).removeprefix(".")
    error = kind(str(error)) if type(error) is Fault else error
    return error.at(place) if place else error


@cache
def readers(*, ignore_unknown: bool) -> dict[object, Read]:
    """Return the reader of each class of values, and of each message that is not a value."""
    of_object = partial(_object, ignore_unknown)
    assets = {"base": _ASSET, "quote": _ASSET}
    level = of_object(PriceLevel, {"price": _PRICE, "accumulated_liquidity": partial(_amount, 1)})
    change = of_object(_change, {"price": _PRICE, "accumulated_liquidity": partial(_amount, 0)})
    spot = {"spot": partial(_optional, _PRICE)}
    sides = {"bids": partial(_array, level), "asks": partial(_array, level)}
    changed_sides = {"bids": partial(_array, change), "asks": partial(_array, change)}
    book = partial(_order_book, of_object(dict, assets | spot | sides, ("spot", "bids", "asks")), ignore_unknown)
    pair = of_object(Pair, assets)
    info = of_object(PairInfo, assets | {"last_spot": partial(_optional, _PRICE)})
    time = partial(_optional, partial(_text, parse_time))
    freshness = {"as_of": partial(_optional, partial(_text, str)), "published_at": time}
    order: dict[str, Read] = {"pair": pair, "side": _SIDE, "price": partial(_text, _price_or_ratio)}
    return {
        AssetId: _ASSET,
        Pair: pair,
        PairInfo: info,
        PriceLevel: level,
        Levels: of_object(Levels, {"side": _SIDE, "levels": partial(_array, level)}),
        OrderBook: book,
        Order: of_object(Order, order | {"amount": partial(_amount, 0)}),
        Freshness: of_object(Freshness, freshness, ("published_at",)),
        MarketIndex: of_object(MarketIndex, {"books": partial(_array, book)} | freshness, ("published_at",)),
        CHANGES: of_object(dict, assets | spot | changed_sides),
        PAIR_LIST: of_object(dict, {"pairs": partial(_array, info)}),
        COMMIT: of_object(dict, freshness | {"recorded_at": time}, ("published_at", "recorded_at")),
    }


def _object(
    ignore_unknown: bool,  # noqa: FBT001  # bound by `partial`
    make: Callable[..., Any],
    fields: Mapping[str, Read],
    optional: Collection[str] = (),
) -> Read:
    """Return the reader of an object with these keys."""

    def read(value: Any) -> Any:
        require_type(value, dict)
        found = {}
        for key, read_field in fields.items():
            try:
                if key in value:
                    found[key] = read_field(value[key])
                elif key not in optional:
                    raise Fault("missing")
            except MarketIndexError as error:
                error.add_note(f".{key}")
                raise
        if len(found) < len(value) and not ignore_unknown:
            raise Fault(f"unknown key {safe_repr(min(value.keys() - fields.keys(), key=str))}")
        return make(**found)

    return read


def _array(read: Read, value: Any) -> list[Any]:
    require_type(value, list)
    items: list[Any] = []
    try:
        for item in value:
            items.append(read(item))  # noqa: PERF401  # its length is the place of a fault
    except MarketIndexError as error:
        error.add_note(f"[{len(items)}]")
        raise
    return items


def _text(parse: Callable[[str], Any], value: Any) -> Any:
    require_type(value, str)
    return parse(value)


def _optional(read: Read, value: Any) -> Any:
    return None if value is None else read(value)


def _amount(least: int, value: Any) -> int:
    if type(value) is not int or not least <= value <= MAX_LIQUIDITY:
        raise Fault(f"must be a whole number from {least} to 2^64-1, got {shown(value)}")
    return value


def _side(text: str) -> Side:
    try:
        return Side(text)
    except ValueError:
        raise Fault(f"must be bid or ask, got {safe_repr(text)}") from None


def _price_or_ratio(text: str) -> Decimal | Fraction:
    return to_price_or_ratio(to_ratio(text))


def _change(price: Decimal, accumulated_liquidity: int) -> tuple[Decimal, int]:
    return price, accumulated_liquidity


_ASSET: Final = partial(_text, AssetId.parse)
_PRICE: Final = partial(_text, parse_price)
_SIDE: Final = partial(_text, _side)


# An order book, by columns


_KEYS: Final = {"base", "quote", "spot", "bids", "asks"}
_PRICE_OF: Final = itemgetter("price")
_AMOUNT_OF: Final = itemgetter("accumulated_liquidity")


def _order_book(find_fault: Read, ignore_unknown: bool, value: Any) -> OrderBook:  # noqa: FBT001  # bound by `partial`
    try:
        pair = Pair(AssetId.parse(value["base"]), AssetId.parse(value["quote"]))
        bids, asks, spot = value.get("bids", []), value.get("asks", []), value.get("spot")
        if not ignore_unknown:
            _require_known_keys(value, bids + asks)
        return OrderBook(pair, *_sides(bids, asks), spot if spot is None else parse_price(spot))
    except (MarketIndexError, AttributeError, KeyError, OverflowError, TypeError):
        find_fault(value)
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
    prices, keys = parse_prices(list(map(_PRICE_OF, levels)))
    amounts = list(map(_AMOUNT_OF, levels))
    # The array rejects amounts that are not from 0 to 2^64-1.
    column = column_of("Q", amounts)
    if levels and not (set(map(type, amounts)) == {int} and all(amounts)):
        raise TypeError
    best_ask = len(bids)
    return (
        levels_of_columns(Side.BID, prices[:best_ask], column[:best_ask], keys and keys[:best_ask]),
        levels_of_columns(Side.ASK, prices[best_ask:], column[best_ask:], keys and keys[best_ask:]),
    )
