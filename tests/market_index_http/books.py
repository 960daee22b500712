"""Books of three sizes, requests with header fields, and uvicorn without the command."""

from __future__ import annotations

from typing import Any

import uvicorn

from market_index import ADA, AssetId, OrderBook, Pair
from tests.service import Client, HttpResponse
from tests.waiting import DEADLINE_SECONDS

PAIR_LIST = "/trading-view/pair-list"
ORDER_BOOK = "/trading-view/order-book"


def numbered_pair(number: int) -> Pair:
    return Pair(AssetId(number.to_bytes(28, "big"), b"\xab\xcd"), ADA)


def book(number: int, levels: int = 30, spot: str | None = None) -> OrderBook:
    prices = [f"0.{price:06}" for price in range(1, 2 * levels + 1)]
    return OrderBook.from_levels(
        numbered_pair(number),
        bids=[(price, number + 1) for price in prices[:levels]],
        asks=[(price, number + 1) for price in prices[levels:]],
        spot=spot,
    )


def target(pair: Pair) -> str:
    return f"/trading-view/order-book?base={pair.base}&quote={pair.quote}"


SMALL, MIDDLE, LARGE = book(1, 1), book(2, 30), book(3, 1_500)


def fetch(client: Client, target: str, method: str = "GET", **headers: str | None) -> HttpResponse:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items() if value is not None)
    return client.request(target, method, lines)


def stock(app: Any, *, lifespan: bool = False) -> uvicorn.Server:
    """Return uvicorn for an app. Its default closes an idle connection before a machine has drawn its next request."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            lifespan="on" if lifespan else "off",
            ws="none",
            log_config=None,
            server_header=False,
            timeout_keep_alive=int(DEADLINE_SECONDS),
        )
    )
