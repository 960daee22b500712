"""The upper limit: an ASGI function that sends prebuilt bytes."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp

from market_index import LiveIndex, wire


def create_app(lines: list[bytes]) -> ASGIApp:
    live = LiveIndex(map(wire.order_book_from_json, lines))
    pair_list = wire.pair_list_to_json(live.current.pair_list())
    by_query = {
        f"base={pair.base}&quote={pair.quote}".encode(): wire.order_book_to_json(book)
        for pair, book in live.current.items()
    }

    async def raw(scope: Any, receive: Any, send: Any) -> None:
        body = by_query[scope["query_string"]] if scope["query_string"] else pair_list
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return raw
