"""A service of the two endpoints, written without the library, in which faults can be planted."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

from market_index.contract import Request, Response

PAIR_LIST = "/trading-view/pair-list"
ORDER_BOOK = "/trading-view/order-book"
ASSET = re.compile(r"ADA|[0-9a-fA-F]{56}:(?:[0-9a-fA-F]{2}){0,32}").fullmatch

MIN = "29d222ce763455e3d7a09a665ce554f00ac89d2e99a1a83d267170c6:4d494e"
SNEK = "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f:534e454b"
USD = "8db269c3ec630e06ae29f74bc39edd1f87c819f1056206e879a1cd61:446a65644d6963726f555344"
BLANK = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00:"

Levels = list[tuple[str, int]]

BOOKS: dict[tuple[str, str], tuple[str | None, Levels, Levels]] = {
    ("ADA", SNEK): (
        "0.000012",
        [("0.0000115", 7_000_000), ("0.000011", 3_000_000), ("0.000009", 41_000_000), ("0.00000105", 9_000_001)],
        [("0.0000125", 1_000), ("0.00013", 5_000_000_000), ("0.002", 4_500)],
    ),
    ("ADA", USD): (
        "0.65",
        [("0.64999999999999999999999999", 1), ("0.64999999999999999999999998", 18_446_744_073_709_551_615)],
        [("0.66", 9_007_199_254_740_993), ("9", 17), ("10", 5), ("100.5", 12)],
    ),
    (SNEK, "ADA"): (None, [], [("80000", 44)]),
    (MIN, "ADA"): (None, [], []),
    (MIN, SNEK): ("4.4", [("4.3", 12), ("4.25", 11)], [("4.5", 10), ("4.6", 3), ("4.7", 9)]),
    (BLANK, "ADA"): ("1000000", [("999999", 2)], []),
}


class Double:
    """Answers by the contract and the decisions. A subclass, or an attribute of an instance, plants a fault."""

    tags = True

    def __init__(self) -> None:
        self.books = dict(BOOKS)
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Response:
        assert re.fullmatch("[!-~]+", request.target), "no client can send this"
        self.requests.append(request)
        self.move()
        response = self.edit(request, self.respond(request))
        return Response(response.status, response.headers, b"") if request.method == "HEAD" else response

    def move(self) -> None:
        """Change between two requests."""

    def edit(self, request: Request, response: Response) -> Response:
        del request
        return response

    def respond(self, request: Request) -> Response:
        path, _, query = request.target.partition("?")
        if unquote(path) not in {PAIR_LIST, ORDER_BOOK}:
            return self.error(404, "Not Found")
        if request.method not in {"GET", "HEAD"}:
            return self.error(405, "Method Not Allowed", Allow="GET, HEAD")
        if len(request.target) > 8192 or query.count("&") >= 32:
            return self.error(400, "too large")
        if path == PAIR_LIST:
            return self.success(request, self.pair_list(query))
        given = parse_qsl(query, keep_blank_values=True)
        found = {}
        for name in ("base", "quote"):
            values = [value for key, value in given if key == name]
            if (fault := self.fault(values)) is not None:
                return self.error(400, f"Query parameter '{name}': {fault}, got {values}")
            found[name] = values[-1]
        base, quote = found["base"], found["quote"]
        book = self.find(base, quote)
        if book is None:
            return self.error(404, f"Pair {base}/{quote} not found")
        return self.success(request, self.order_book(base, quote, book))

    def fault(self, values: list[str]) -> str | None:
        return None if len(values) == 1 and ASSET(values[0]) else "must be one asset"

    def find(self, base: str, quote: str) -> Any:
        base, quote = (asset if asset == "ADA" else asset.lower() for asset in (base, quote))
        return self.books.get((base, quote))

    def pair_list(self, query: str) -> Any:
        del query
        order = sorted(self.books, key=lambda pair: [(one != "ADA", one) for one in pair])
        return {"pairs": [self.info(*pair, self.books[pair][0]) for pair in order]}

    def info(self, base: str, quote: str, spot: str | None) -> Any:
        return {"base": base, "quote": quote, "last_spot": spot}

    def order_book(self, base: str, quote: str, book: Any) -> Any:
        spot, bids, asks = book
        return {"base": base, "quote": quote, "spot": spot, "bids": self.side(bids), "asks": self.side(asks)}

    def side(self, levels: Levels) -> Any:
        return [self.level(price, amount) for price, amount in levels]

    def level(self, price: str, amount: int) -> Any:
        return {"price": price, "accumulated_liquidity": amount}

    def success(self, request: Request, value: Any) -> Response:
        body = self.encode(value)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        if self.tags:
            tag = self.tag(body)
            headers["ETag"] = tag
            if self.matches(tag, request.headers.get("If-None-Match", "")):
                return Response(304, {"ETag": tag}, b"")
        return Response(200, headers, body)

    def tag(self, body: bytes) -> str:
        return f'W/"{hashlib.sha256(body).hexdigest()[:16]}"'

    def matches(self, tag: str, condition: str) -> bool:
        return condition == "*" or tag.removeprefix("W/") in [
            one.strip().removeprefix("W/") for one in condition.split(",")
        ]

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def error(self, status: int, message: str, **headers: str) -> Response:
        body = self.encode(self.error_body(status, message))
        return Response(status, headers | {"Content-Type": "application/json"}, body)

    def error_body(self, status: int, message: str) -> Any:
        del status
        return {"error": message}


Planted = Callable[[Double], Any]


def of(name: str, make: Callable[[Any], Any]) -> Planted:
    """Replace a method of a double by what `make` makes of it."""

    def plant(double: Double) -> None:
        setattr(double, name, make(getattr(double, name)))

    return plant


def edited(name: str, edit: Callable[[Any], Any]) -> Planted:
    """Change the result of a method."""
    return of(name, lambda method: lambda *values, **named: edit(method(*values, **named)))
