"""Starlette with its routes and JSONResponse, over the same domain: each response is encoded again."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from market_index import AssetId, LiveIndex, Pair, PairNotFound, PriceLevel, format_price, wire


def create_app(lines: list[bytes]) -> Any:
    live = LiveIndex(map(wire.order_book_from_json, lines))

    def level(one: PriceLevel) -> dict[str, Any]:
        return {"price": format_price(one.price), "accumulated_liquidity": one.accumulated_liquidity}

    async def order_book(request: Request) -> JSONResponse:
        base, quote = request.query_params["base"], request.query_params["quote"]
        try:
            book = live.current.order_book(Pair(AssetId.parse(base), AssetId.parse(quote)))
        except PairNotFound as missing:
            raise HTTPException(404, str(missing)) from None
        spot = None if book.spot is None else format_price(book.spot)
        bids, asks = [level(one) for one in book.bids], [level(one) for one in book.asks]
        return JSONResponse({"base": base, "quote": quote, "spot": spot, "bids": bids, "asks": asks})

    async def pair_list(_: Request) -> JSONResponse:
        pairs = [
            {
                "base": str(one.base),
                "quote": str(one.quote),
                "last_spot": None if one.last_spot is None else format_price(one.last_spot),
            }
            for one in live.current.pair_list()
        ]
        return JSONResponse({"pairs": pairs})

    return Starlette(
        routes=[Route("/trading-view/order-book", order_book), Route("/trading-view/pair-list", pair_list)]
    )
