"""The rules of a body. All of its faults are found, not only the first one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias, final

from attrs import field, frozen

from market_index.contract.messages import Request, Response
from market_index.contract.report import MAX_FAULTS, Fault, Result, Rule
from market_index.errors import InvalidPrice, PriceOutOfRange, safe_repr
from market_index.levels import MAX_LIQUIDITY
from market_index.prices import format_price, parse_price
from market_index.wire import Number

MAX_KEPT_LEVELS: Final = 100
"""How many levels of a side are kept for the hints. All are checked."""

_is_asset: Final = re.compile(r"ADA|(?:[0-9a-fA-F]{2})+:(?:[0-9a-fA-F]{2})*").fullmatch
_is_canonical_asset: Final = re.compile(r"ADA|[0-9a-f]{56}:(?:[0-9a-f]{2}){0,32}").fullmatch
_can_be_sent: Final = re.compile(r"[!-~]{0,500}").fullmatch

# A price; the text of one that is not valid; or null.
Price: TypeAlias = Decimal | str | None
# Prices and amounts.
Side: TypeAlias = Sequence[tuple[Price, Any]]


def _canonical(asset: str) -> str:
    """Return the same text for all spellings. These texts are in ledger order: policy ids have a fixed length."""
    return "" if asset == "ADA" else asset.lower()


@final
@frozen(order=True)
class Pair:
    """A pair, as it is spelled in the list or in a request. Spellings are equal; the order is that of the ledger."""

    base: str = field(eq=_canonical)
    quote: str = field(eq=_canonical)


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
                shown = str(came) if isinstance(came, Response) else safe_repr(came)
                result.faults.append(Fault(self.request, expected, shown))
        return bool(holds)

    def pair_list(self, response: Response) -> dict[Pair, Price]:
        """Return the last spot of each pair of a list that can be read, and whose names a request can contain."""
        found: dict[Pair, Price] = {}
        before = Pair("ADA", "ADA")
        (entries,) = self._values(Rule.LIST_SHAPE, "the body", self._json(response), pairs=list) or [[]]
        for number, entry in enumerate(entries):
            place = f"pairs[{number}]"
            values = self._values(Rule.LIST_SHAPE, place, entry, base=str, quote=str, last_spot=object)
            if not values:
                continue
            pair, last_spot = Pair(*values[:2]), values[2]
            self._asset(f"{place}.base", pair.base)
            self._asset(f"{place}.quote", pair.quote)
            self.require(Rule.LIST_ONCE, pair not in found, f"{place} not listed before", entry)
            two = _canonical(pair.base) != _canonical(pair.quote)
            self.require(Rule.TWO_ASSETS, two, f"{place} of two assets", entry)
            self.require(Rule.LIST_ORDER, before <= pair, f"{place} in ledger order", entry)
            before = pair
            spot = self._spot(f"{place}.last_spot", last_spot)
            if _can_be_sent(pair.base + pair.quote):
                found[pair] = spot
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
        value = self._json(response, Rule.JSON if rule is Rule.ERROR_BODY else rule)
        message = value.get("error") if type(value) is dict else None
        found = message if type(message) is str else ""
        self.require(rule, found, f'{response.status} with {{"error": <text>}}', response)
        return found

    def _json(self, response: Response, rule: Rule = Rule.JSON) -> Any:
        media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = media in {"", "application/json"} or media.endswith("+json")
        self.require(rule, is_json, "Content-Type: application/json", media)
        _, value = content_of(response)
        self.require(rule, type(value) is not bytes, "JSON", response)
        return value

    def _values(self, rule: Rule, place: str, value: Any, **types: type) -> list[Any]:
        """Return the values of these keys of an object; nothing if one is missing or has another type."""
        has_shape = type(value) is dict and all(
            key in value and isinstance(value[key], of_type) for key, of_type in types.items()
        )
        expected = f"{place}: an object with {', '.join(types)}"
        return [value[key] for key in types] if self.require(rule, has_shape, expected, value) else []

    def _asset(self, place: str, text: str) -> None:
        if self.require(Rule.ASSETS, _is_asset(text), f"{place}: ADA or policy:name in hex", text):
            expected = f"{place}: ADA or 56 hex digits, a colon and 0 to 64, in lower case"
            self.require(Rule.IDENTIFIERS, _is_canonical_asset(text), expected, text)

    def _spot(self, place: str, value: Any) -> Price:
        return None if value is None else self._price(place, value)

    def _price(self, place: str, value: Any) -> Price:
        price: Price = repr(value)
        try:
            price = parsed = parse_price(value)
            is_number, text = True, format_price(parsed)
        except InvalidPrice as error:
            # A number above 0 that is out of our range may be a price of another service.
            is_number = isinstance(error, PriceOutOfRange) and value.lower().partition("e")[0].strip("0.") != ""
            text = str(error)
        if self.require(Rule.PRICES, is_number, f"{place}: a price", value):
            self.require(Rule.ONE_TEXT, value == text, f"{place}: {text}", value)
        return price

    def _side(self, order: Rule, levels: list[Any]) -> Side:
        found: list[tuple[Price, Any]] = []
        before: Decimal | None = None
        for number, level in enumerate(levels):
            place = f"{order.name.lower()}[{number}]"
            values = self._values(Rule.BOOK_SHAPE, place, level, price=object, accumulated_liquidity=object)
            if not values:
                continue
            price, amount = self._price(f"{place}.price", values[0]), values[1]
            if self.require(Rule.LIQUIDITY, type(amount) is int and amount >= 0, f"{place}: an integer", amount):
                self.require(Rule.AMOUNTS, 1 <= amount <= MAX_LIQUIDITY, f"{place}: 1 to 2^64-1", amount)
            found.append((price, amount))
            if isinstance(price, Decimal):
                if before is not None:
                    is_next = price <= before if order is Rule.BIDS else price >= before
                    self.require(order, is_next, f"{place}.price after {before:f}", values[0])
                    self.require(Rule.ONE_LEVEL, price != before, f"{place}.price other than {before:f}", level)
                before = price
        return found[:MAX_KEPT_LEVELS]


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
