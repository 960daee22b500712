"""Litestar and msgspec, as in their documentation: structs in a dict, and each response encoded."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
from litestar import Litestar, get
from litestar.exceptions import NotFoundException


class PriceLevel(msgspec.Struct):
    price: Decimal
    accumulated_liquidity: int


class OrderBook(msgspec.Struct):
    base: str
    quote: str
    spot: Decimal | None
    bids: list[PriceLevel]
    asks: list[PriceLevel]


class PairInfo(msgspec.Struct):
    base: str
    quote: str
    last_spot: Decimal | None


class PairList(msgspec.Struct):
    pairs: list[PairInfo]


BOOKS: dict[tuple[str, str], OrderBook] = {}


@get("/trading-view/order-book")
async def order_book(base: str, quote: str) -> OrderBook:
    if (base, quote) not in BOOKS:
        raise NotFoundException(f"Pair {base}/{quote} not found")
    return BOOKS[base, quote]


@get("/trading-view/pair-list")
async def pair_list() -> PairList:
    return PairList([PairInfo(book.base, book.quote, book.spot) for book in BOOKS.values()])


def create_app(lines: list[bytes]) -> Any:
    for line in lines:
        book = msgspec.json.decode(line, type=OrderBook)
        BOOKS[book.base, book.quote] = book
    return Litestar([order_book, pair_list], openapi_config=None)
