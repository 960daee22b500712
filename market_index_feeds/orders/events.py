"""Decodes the events of a feed of orders, one JSON object per line. docs/order-events.md is the specification.

A line is malformed, and the producer faulty, if a key is missing or unknown, or a value is invalid. An order
whose numbers or assets are well-formed but impossible is no fault of the producer: anyone can place it on the ledger.
It is kept, without liquidity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final, TypeAlias

from attrs import frozen

from market_index import (
    ADA,
    AssetId,
    InvalidAssetId,
    InvalidOrderBook,
    InvalidPrice,
    Order,
    Pair,
    PriceOutOfRange,
    Side,
)
from market_index.errors import safe_repr
from market_index.wire import Number, object_from_json

MAX_TEXT_CHARACTERS: Final = 200
"""The maximum length of an order id, and of the text of a block."""

_AMOUNT_DIGITS: Final = 50
"""The first digits of an amount, which suffice: from 10^49 on, an offer pays for more than 2^64-1 at every price."""

_MAX_COMMAS: Final = MAX_TEXT_CHARACTERS + 5
"""The commas of an event: 5 between its 6 keys, and others only in its id. More would be slow to decode."""

_MAX_CACHED_PAIRS: Final = 262_144

# `\Z`, because `$` also matches before a newline. Possessive, so that the time is linear in the length.
_amount_parts: Final = re.compile(r"(-?)([0-9]++)\Z").match
# Any number of bytes in hex: lengths are checked later.
_is_asset: Final = re.compile(r"(?:ADA|(?:[0-9A-Fa-f]{2})*+:(?:[0-9A-Fa-f]{2})*+)\Z").match

_SIDES: Final = {"base": Side.ASK, "quote": Side.BID}
"""The side of an order, by which asset it offers."""

_ANY_PAIR: Final = Pair(AssetId(bytes(28), b""), ADA)
"""The pair with which the price of an order is checked whose own assets are not a pair."""


@frozen
class Place:
    """An order is created, or replaced by its unfilled part.

    `fault` is why it has no liquidity, None if it has. `order` is None if its pair cannot be tracked.
    """

    order_id: str
    order: Order | None
    fault: str | None = None


@frozen
class Remove:
    """An order is consumed or cancelled."""

    order_id: str


@frozen
class Spot:
    """The last executed price of a pair. `fault` is why it is not known: its text is out of range."""

    pair: Pair
    price: Decimal | None
    fault: str | None = None


@frozen
class Untrack:
    """A pair without orders is no longer tracked."""

    pair: Pair


@frozen
class Block:
    """All events since the previous block become visible."""

    text: str


@frozen
class Rollback:
    """All events since a block are undone."""

    text: str


@frozen
class Reset:
    """The whole state follows."""


Event: TypeAlias = Place | Remove | Spot | Untrack | Block | Rollback | Reset


_Values: TypeAlias = Mapping[str, object]


def read_event(text: bytes) -> Event:
    """Decode a line, without its newline.

    >>> read_event(b'{"remove": "51ab#0"}')
    Remove(order_id='51ab#0')

    Raises `InvalidOrderBook`, `InvalidAssetId` or `InvalidPrice`, with the key and the value, if the line is malformed.
    """
    if (commas := text.count(b",")) > _MAX_COMMAS:
        raise InvalidOrderBook(f"an event must have at most {_MAX_COMMAS} commas, got {commas}: {safe_repr(text)}")
    values = object_from_json(text)
    for kind, (keys, read) in _KINDS.items():
        if kind in values:
            if values.keys() != keys:
                raise _wrong_keys(kind, keys, values)
            return read(values)
    raise InvalidOrderBook(f"must have one of the keys {', '.join(_KINDS)}, got {safe_repr(list(values))}")


def _place(values: _Values) -> Place:
    order_id, side = _printable(values, "place"), _side(values)
    amount, price = _amount(values["amount"]), _text(values, "price")
    assets = _text(values, "base"), _text(values, "quote")
    try:
        pair = _parsed_pair(*assets)
    except (InvalidAssetId, InvalidOrderBook) as error:
        if not all(map(_is_asset, assets)):
            raise
        _order("price", _ANY_PAIR, side, 0, price)
        return Place(order_id, None, str(error))
    order, fault = _order("price", pair, side, max(amount, 0), price)
    if fault is None and amount < 0:
        fault = f"amount must be 0 or more, got {safe_repr(values['amount'])}"
    return Place(order_id, order if fault is None else Order(pair, side, "1", 0), fault)


def _remove(values: _Values) -> Remove:
    return Remove(_printable(values, "remove"))


def _spot(values: _Values) -> Spot:
    pair = _pair(values)
    if values["spot"] is None:
        return Spot(pair, None)
    # An ask has the unit of a spot price, quote per base. A ratio that is not a price is rounded up.
    order, fault = _order("spot", pair, Side.ASK, 0, _text(values, "spot"))
    return Spot(pair, None if order is None else order.level_price, fault)


def _untrack(values: _Values) -> Untrack:
    _require_true(values, "untrack")
    return Untrack(_pair(values))


def _block(values: _Values) -> Block:
    return Block(_block_text(values, "block"))


def _rollback(values: _Values) -> Rollback:
    return Rollback(_block_text(values, "rollback"))


def _reset(values: _Values) -> Reset:
    _require_true(values, "reset")
    return Reset()


_KINDS: Final[Mapping[str, tuple[frozenset[str], Callable[[_Values], Event]]]] = {
    "place": (frozenset({"place", "base", "quote", "offered", "amount", "price"}), _place),
    "remove": (frozenset({"remove"}), _remove),
    "spot": (frozenset({"spot", "base", "quote"}), _spot),
    "untrack": (frozenset({"untrack", "base", "quote"}), _untrack),
    "block": (frozenset({"block"}), _block),
    "rollback": (frozenset({"rollback"}), _rollback),
    "reset": (frozenset({"reset"}), _reset),
}


def _wrong_keys(kind: str, keys: frozenset[str], values: _Values) -> InvalidOrderBook:
    missing, unknown = sorted(keys - values.keys()), sorted(values.keys() - keys)
    wrong = f"missing {', '.join(missing)}" if missing else f"unknown key {safe_repr(unknown[0])}"
    return InvalidOrderBook(f"{kind}: {wrong}")


def _order(key: str, pair: Pair, side: Side, amount: int, price: str) -> tuple[Order | None, str | None]:
    """Return an order, or None and why its price is out of range. Raises `InvalidPrice` for a malformed one."""
    try:
        offered = pair.base if side is Side.ASK else pair.quote
        return Order.from_offer(pair, offered=offered, amount=amount, price=price), None
    except PriceOutOfRange as error:
        return None, str(error)
    except InvalidPrice as error:
        raise error.at(key) from None


def _text(values: _Values, key: str) -> str:
    value = values[key]
    if type(value) is not str:
        raise InvalidOrderBook(f"{key} must be a string, got {safe_repr(value)}")
    return value


def _printable(values: _Values, key: str) -> str:
    text = _text(values, key)
    if not (1 <= len(text) <= MAX_TEXT_CHARACTERS and text.isascii() and text.isprintable()):
        raise InvalidOrderBook(
            f"{key} must be 1 to {MAX_TEXT_CHARACTERS} printable ASCII characters, got {safe_repr(text)}"
        )
    return text


def _block_text(values: _Values, key: str) -> str:
    text = _printable(values, key)
    if text != text.strip(" "):
        raise InvalidOrderBook(f"{key} must have no space at either end, got {safe_repr(text)}")
    return text


def _require_true(values: _Values, key: str) -> None:
    if values[key] is not True:
        raise InvalidOrderBook(f"{key} must be true, got {safe_repr(values[key])}")


def _side(values: _Values) -> Side:
    offered = values["offered"]
    if type(offered) is not str or offered not in _SIDES:
        raise InvalidOrderBook(f"offered must be 'base' or 'quote', got {safe_repr(offered)}")
    return _SIDES[offered]


def _amount(amount: object) -> int:
    """Return an amount. Only the first digits of a huge one are converted, because all would take long."""
    if type(amount) is int:
        return amount
    text = amount.text if isinstance(amount, Number) else amount
    parts = _amount_parts(text) if type(text) is str else None
    if parts is None:
        raise InvalidOrderBook(f"amount must be a whole number, or a string of its digits, got {safe_repr(amount)}")
    sign, digits = parts.groups()
    return int(sign + (digits.lstrip("0") or "0")[:_AMOUNT_DIGITS])


def _pair(values: _Values) -> Pair:
    return _parsed_pair(_text(values, "base"), _text(values, "quote"))


@lru_cache(maxsize=_MAX_CACHED_PAIRS)
def _parsed_pair(base: str, quote: str) -> Pair:
    pair = Pair(_asset("base", base), _asset("quote", quote))
    if pair.base == pair.quote:
        raise InvalidOrderBook(f"base and quote must be different assets, got {safe_repr(base)} twice")
    return pair


def _asset(key: str, text: str) -> AssetId:
    try:
        return AssetId.parse(text)
    except InvalidAssetId as error:
        raise error.at(key) from None
