"""The rules of a body. All of its faults are found, not only the first one."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final, TypeAlias, final

from attrs import frozen

from market_index.assets import AssetId
from market_index.contract.messages import Request, Response
from market_index.contract.report import MAX_FAULTS, Fault, Result, Rule
from market_index.errors import InvalidAssetId, InvalidPrice, PriceOutOfRange, safe_repr
from market_index.levels import MAX_LIQUIDITY
from market_index.prices import format_price, parse_price
from market_index.wire import Number

MAX_KEPT_LEVELS: Final = 100
"""How many levels of a side are kept for the hints. All are checked."""

_HEX: Final = frozenset("0123456789abcdefABCDEF")

# A price; the text of one that is not valid; or null.
Price: TypeAlias = Decimal | str | None
# Prices and amounts.
Side: TypeAlias = list[tuple[Price, Any]]


@final
@frozen
class Pair:
    """A pair, as it is spelled in the list or in a request."""

    base: str
    quote: str

    @property
    def key(self) -> tuple[str, str]:
        """The same for all spellings."""
        return self.base.lower(), self.quote.lower()


@final
@frozen
class Book:
    """The content of an order book, valid or not."""

    pair: Pair
    spot: Price
    bids: Side
    asks: Side


class Examination:
    """Checks bodies, and records the results. `request` is the request of the body."""

    def __init__(self) -> None:
        self.results: Final = {rule: Result(rule) for rule in Rule}
        self.request: Request = Request("")

    def require(self, rule: Rule, holds: object, expected: str, came: object) -> bool:
        """Record whether a rule holds, and return that."""
        result = self.results[rule]
        result.checked += 1
        if not holds:
            result.failed += 1
            if len(result.faults) < MAX_FAULTS:
                shown = (
                    f"status {came.status}: {safe_repr(came.body)}" if isinstance(came, Response) else safe_repr(came)
                )
                result.faults.append(Fault(self.request, expected, shown))
        return bool(holds)

    def pair_list(self, response: Response) -> dict[Pair, Price]:
        """Return the last spot of each pair of a list that can be read."""
        found: dict[Pair, Price] = {}
        keys, before = set[tuple[str, str]](), ((False, ""), (False, ""))
        (entries,) = self._values(Rule.LIST_SHAPE, "the body", self._json(response), pairs=list) or [[]]
        for number, entry in enumerate(entries):
            place = f"pairs[{number}]"
            values = self._values(Rule.LIST_SHAPE, place, entry, base=str, quote=str, last_spot=object)
            if not values:
                continue
            pair, last_spot = Pair(*values[:2]), values[2]
            self._asset(f"{place}.base", pair.base)
            self._asset(f"{place}.quote", pair.quote)
            self.require(Rule.LIST_ONCE, pair.key not in keys, f"{place} not listed before", entry)
            self.require(Rule.TWO_ASSETS, pair.key[0] != pair.key[1], f"{place} of two assets", entry)
            # A policy id has a fixed length, so texts sort as bytes do.
            order = (pair.base != "ADA", pair.key[0]), (pair.quote != "ADA", pair.key[1])
            self.require(Rule.LIST_ORDER, before <= order, f"{place} in ledger order", entry)
            before = order
            keys.add(pair.key)
            found[pair] = self._spot(f"{place}.last_spot", last_spot)
        return found

    def book(self, pair: Pair, response: Response) -> Book | None:
        """Return the book of a pair, which was asked in this spelling; None if it cannot be read."""
        types: dict[str, type] = {"base": object, "quote": object, "spot": object, "bids": list, "asks": list}
        values = self._values(Rule.BOOK_SHAPE, "the body", self._json(response), **types)
        if not values:
            return None
        base, quote, spot, bids, asks = values
        self.require(Rule.ECHO, base == pair.base, f"base {pair.base}", base)
        self.require(Rule.ECHO, quote == pair.quote, f"quote {pair.quote}", quote)
        return Book(pair, self._spot("spot", spot), self._side(Rule.BIDS, bids), self._side(Rule.ASKS, asks))

    def message(self, rule: Rule, response: Response) -> str:
        """Return the message of an error body; an empty text for another body, which breaks the rule."""
        status, value = content_of(response)
        if rule is Rule.ERROR_BODY:
            self._json(response)
        message = value.get("error") if type(value) is dict else None
        found = message if type(message) is str else ""
        self.require(rule, found, f'{status} with {{"error": <text>}}', response)
        return found

    def _json(self, response: Response) -> Any:
        media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = media in {"", "application/json"} or media.endswith("+json")
        self.require(Rule.JSON, is_json, "Content-Type: application/json", media)
        _, value = content_of(response)
        self.require(Rule.JSON, type(value) is not bytes, "JSON", response)
        return value

    def _values(self, rule: Rule, place: str, value: Any, **types: type) -> list[Any]:
        """Return the values of these keys of an object; nothing if one is missing or has another type."""
        has_shape = type(value) is dict and all(
            key in value and isinstance(value[key], of_type) for key, of_type in types.items()
        )
        expected = f"{place}: an object with {', '.join(types)}"
        return [value[key] for key in types] if self.require(rule, has_shape, expected, value) else []

    def _asset(self, place: str, text: str) -> None:
        policy_id, colon, name = text.partition(":")
        is_hex = colon and policy_id and set(policy_id + name) <= _HEX and len(policy_id) % 2 == len(name) % 2 == 0
        if self.require(Rule.ASSETS, text == "ADA" or is_hex, f"{place}: ADA or policy:name in hex", text):
            try:
                canonical = str(AssetId.parse(text))
            except InvalidAssetId as error:
                canonical = str(error)
            self.require(Rule.IDENTIFIERS, text == canonical, f"{place}: {canonical}", text)

    def _spot(self, place: str, value: Any) -> Price:
        return None if value is None else self._price(place, value)

    def _price(self, place: str, value: Any) -> Price:
        try:
            price = parse_price(value)
        except InvalidPrice as error:
            # A number that is not zero may be a price of another service, but not of ours.
            is_number = isinstance(error, PriceOutOfRange) and value.lower().partition("e")[0].strip("0.")
            rule = Rule.ONE_TEXT if is_number else Rule.PRICES
            self.require(rule, holds=False, expected=f"{place}: a price", came=value)
            return repr(value)
        self.require(Rule.PRICES, holds=True, expected="", came="")
        self.require(Rule.ONE_TEXT, value == format_price(price), f"{place}: {price:f}", value)
        return price

    def _side(self, order: Rule, levels: list[Any]) -> Side:
        found: Side = []
        before: Decimal | None = None
        for number, level in enumerate(levels):
            place = f"{order.name.lower()}[{number}]"
            values = self._values(Rule.BOOK_SHAPE, place, level, price=object, accumulated_liquidity=object)
            if not values:
                continue
            price, amount = self._price(f"{place}.price", values[0]), values[1]
            if self.require(Rule.LIQUIDITY, type(amount) is int and amount >= 0, f"{place}: an integer", amount):
                self.require(Rule.AMOUNTS, 1 <= amount <= MAX_LIQUIDITY, f"{place}: 1 to 2^64-1", amount)
            if number < MAX_KEPT_LEVELS:
                found.append((price, amount))
            if isinstance(price, Decimal):
                if before is not None:
                    is_next = price <= before if order is Rule.BIDS else price >= before
                    self.require(order, is_next, f"{place}.price after {before:f}", values[0])
                    self.require(Rule.ONE_LEVEL, price != before, f"{place}.price other than {before:f}", level)
                before = price
        return found


def content_of(response: Response) -> tuple[int, Any]:
    """Return the status and the JSON value of a body without the keys of other services; its bytes if it has none."""
    try:
        value = _DECODER.decode(str(response.body, "utf-8"))
    except (ValueError, RecursionError):
        return response.status, response.body
    keys = {"pairs", "base", "quote", "spot", "bids", "asks", "error"}
    return response.status, {key: value[key] for key in keys & value.keys()} if type(value) is dict else value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key repeats")
    return found


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=Number, parse_constant=Number)
