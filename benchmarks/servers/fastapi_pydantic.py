"""FastAPI and pydantic, as in their tutorials: models in a dict, and each response validated and encoded."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel


class PriceLevel(BaseModel):
    price: Decimal
    accumulated_liquidity: int


class OrderBook(BaseModel):
    base: str
    quote: str
    spot: Decimal | None
    bids: list[PriceLevel]
    asks: list[PriceLevel]


class PairInfo(BaseModel):
    base: str
    quote: str
    last_spot: Decimal | None


class PairList(BaseModel):
    pairs: list[PairInfo]


def create_app(lines: list[bytes]) -> Any:
    books = {(book.base, book.quote): book for book in map(OrderBook.model_validate_json, lines)}
    app = FastAPI()

    @app.get("/trading-view/order-book")
    async def order_book(base: str, quote: str) -> OrderBook:
        if (base, quote) not in books:
            raise HTTPException(404, f"Pair {base}/{quote} not found")
        return books[base, quote]

    @app.get("/trading-view/pair-list")
    async def pair_list() -> PairList:
        infos = [PairInfo(base=book.base, quote=book.quote, last_spot=book.spot) for book in books.values()]
        return PairList(pairs=infos)

    return app
