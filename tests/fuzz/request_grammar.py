"""The expected response to each request, written from the API document and the decisions, without the library."""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import frozen

from tests.fuzz.grammar import ADA, HEX_DIGITS, Asset, Rejected, asset, asset_text

PAIR_LIST_PATH: Final = "/trading-view/pair-list"
ORDER_BOOK_PATH: Final = "/trading-view/order-book"

TOKEN: Final[Asset] = (bytes(range(28)), b"SNEK")
BOOK: Final[dict[str, Any]] = {
    "base": asset_text(TOKEN),
    "quote": "ADA",
    "spot": "0.0042",
    "bids": [{"price": "0.0041", "accumulated_liquidity": 5}],
    "asks": [{"price": "0.0043", "accumulated_liquidity": 1}],
}
"""The only book that is served."""


@frozen
class Expected:
    """The status of a response and its body as JSON; None means an error body with any message."""

    status: int
    body: Any = None


def expected(method: str, path: str, query: bytes) -> Expected:
    """Return the expected response to a request with a decoded path and a raw query."""
    if path not in {PAIR_LIST_PATH, ORDER_BOOK_PATH}:
        return Expected(404)
    if method not in {"GET", "HEAD"}:
        return Expected(405)
    if path == PAIR_LIST_PATH:
        return Expected(200, {"pairs": [{"base": BOOK["base"], "quote": "ADA", "last_spot": BOOK["spot"]}]})
    return expected_order_book(query)


def expected_order_book(query: bytes) -> Expected:
    """Return the expected response to a request for an order book (decisions 7, 8, 10, 11, 16, 17 and 20)."""
    fields = form_fields(query)
    bases, quotes = ([value for name, value in fields if name == wanted] for wanted in ("base", "quote"))
    if len(bases) != 1 or len(quotes) != 1:
        return Expected(400)
    (base,), (quote,) = bases, quotes
    try:
        pair = asset(base), asset(quote)
    except Rejected:
        return Expected(400)
    if pair != (TOKEN, ADA):
        return Expected(404, {"error": f"Pair {base}/{quote} not found"})
    return Expected(200, BOOK | {"base": base, "quote": quote})


def form_fields(query: bytes) -> list[tuple[str, str]]:
    """Return the names and values of `application/x-www-form-urlencoded`."""
    fields = (field.partition(b"=") for field in query.split(b"&") if field)
    return [(form_text(name), form_text(value)) for name, _, value in fields]


def form_text(encoded: bytes) -> str:
    return percent_decoded(encoded.replace(b"+", b" ")).decode("utf-8", "replace")


def percent_decoded(encoded: bytes) -> bytes:
    """Decode percent-encoded bytes. A percent sign without two hexadecimal digits is not changed."""
    first, *parts = encoded.split(b"%")
    decoded = bytearray(first)
    for part in parts:
        digits, text = part[:2], part[2:]
        is_escape = len(digits) == 2 and not set(digits) - set(HEX_DIGITS.encode())
        decoded += (bytes([int(digits, 16)]) if is_escape else b"%" + digits) + text
    return bytes(decoded)


def body_is_right(body: bytes, wanted: Expected) -> bool:
    """Whether a body is the expected JSON, or any error body if none is expected."""
    value = json.loads(body)
    if wanted.body is not None:
        return bool(value == wanted.body)
    return isinstance(value, dict) and list(value) == ["error"] and isinstance(value["error"], str)
