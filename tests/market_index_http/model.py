"""An independent model of the contract: which response a request must have. It shares no code with the adapter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

from attrs import field, frozen

from market_index import Freshness, OrderBook

PAIR_LIST = "/trading-view/pair-list"
ORDER_BOOK = "/trading-view/order-book"

IDENTIFIER = re.compile(r"ADA|[0-9a-fA-F]{56}:([0-9a-fA-F]{2}){0,32}").fullmatch
GZIP = re.compile(r"(?:^|,)\s*gzip\s*(?:;\s*q=(?P<quality>[0-9.]+))?\s*(?:,|$)", re.IGNORECASE)


@frozen
class Asked:
    """A request. The parameters are decoded."""

    path: str
    parameters: tuple[tuple[str, str], ...] = ()
    method: str = "GET"
    accept_encoding: str = ""


@frozen
class Expected:
    """The response: `content` is the JSON of its body. `error` is what the message of an error must contain."""

    status: int
    content: Any = None
    error: str = ""
    headers: Mapping[str, str] = field(factory=dict)


def expected(books: Mapping[str, OrderBook], freshness: Freshness, asked: Asked) -> Expected:
    """Return the response, apart from a 304, to a request for the books, which are by their pair as BASE/QUOTE."""
    if asked.method not in {"GET", "HEAD"}:
        return Expected(405, error="Method Not Allowed")
    if len(asked.parameters) > 32:
        return Expected(400, error="at most 32 parameters")
    if asked.path == PAIR_LIST:
        # A policy id has a fixed length and lower-case digits, so texts sort like bytes; ADA is first.
        ordered = sorted(books.values(), key=lambda one: (in_order(str(one.pair.base)), in_order(str(one.pair.quote))))
        listed = [
            {"base": str(one.pair.base), "quote": str(one.pair.quote), "last_spot": price(one.spot)} for one in ordered
        ]
        return success({"pairs": listed}, freshness)
    found = {}
    for name in ("base", "quote"):
        values = [value for key, value in asked.parameters if key == name]
        if len(values) != 1 or not IDENTIFIER(values[0]):
            return Expected(400, error=f"Query parameter '{name}'")
        found[name] = values[0]
    canonical = [text if text == "ADA" else text.lower() for text in found.values()]
    book = books.get("/".join(canonical))
    if book is None:
        reverse = "/".join(reversed(canonical))
        hint = f"; its reverse is tracked: {reverse}" if reverse in books else ""
        return Expected(404, error=f"Pair {found['base']}/{found['quote']} not found{hint}")
    sides = {
        name: [
            {"price": price(level.price), "accumulated_liquidity": level.accumulated_liquidity}
            for level in sorted(side, key=lambda level: level.price, reverse=name == "bids")
        ]
        for name, side in (("bids", book.bids), ("asks", book.asks))
    }
    return success({**found, "spot": price(book.spot), **sides}, freshness)


def success(content: Any, freshness: Freshness) -> Expected:
    headers = {"cache-control": "no-cache", "vary": "Accept-Encoding"}
    if freshness.as_of is not None:
        headers["market-index-as-of"] = freshness.as_of
    if freshness.published_at is not None:
        time = freshness.published_at.astimezone(UTC)
        headers["market-index-published-at"] = f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"
    return Expected(200, content, headers=headers)


def accepts_gzip(accept_encoding: str) -> bool:
    found = GZIP.search(accept_encoding)
    return found is not None and Decimal(found["quality"] or "1") > 0


def price(value: Decimal | None) -> str | None:
    if value is None:
        return None
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def in_order(identifier: str) -> tuple[bool, str]:
    return identifier != "ADA", identifier
