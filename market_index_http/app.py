"""The two endpoints, and the error body of everything else."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from market_index import AssetId, InvalidAssetId, LiveIndex, Pair, PairNotFound, wire
from market_index.errors import shown

PAIR_LIST_PATH: Final = "/trading-view/pair-list"
ORDER_BOOK_PATH: Final = "/trading-view/order-book"


def create_app(live: LiveIndex) -> Starlette:
    """Return an ASGI app that serves what `live` holds: the whole app, or mounted under any path of another.

    It opens nothing and needs no lifespan: whoever owns `live` fills it, before or while the app serves. Every error
    has the error body of the contract, `{"error": <message>}`.

    >>> from market_index import LiveIndex
    >>> app = create_app(LiveIndex())
    >>> sorted(route.path for route in app.routes)
    ['/trading-view/order-book', '/trading-view/pair-list']
    """

    async def pair_list(_: Request) -> Response:
        return _json(wire.pair_list_to_json(live.current.pair_list()))

    async def order_book(request: Request) -> Response:
        base, base_asset = _asset(request, "base")
        quote, quote_asset = _asset(request, "quote")
        try:
            book = live.current.order_book(Pair(base_asset, quote_asset))
        except PairNotFound:
            raise HTTPException(404, f"Pair {base}/{quote} not found") from None
        return _json(wire.order_book_to_json(book, base=base, quote=quote))

    app = Starlette(
        routes=[_ExactRoute(PAIR_LIST_PATH, pair_list), _ExactRoute(ORDER_BOOK_PATH, order_book)],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    # A redirect would name the host that the client named.
    app.router.redirect_slashes = False
    return app


class _ExactRoute(Route):
    """A route to one path and no other; Starlette's own takes the path with a newline at its end as well."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__(path, endpoint, methods=["GET"])
        self.path_regex = re.compile(re.escape(path) + r"\Z")


def _asset(request: Request, parameter: str) -> tuple[str, AssetId]:
    """Return the asset that a query parameter names, as it was asked and as it is (decision 16)."""
    values = request.query_params.getlist(parameter)
    if not values:
        raise HTTPException(400, f"Query parameter '{parameter}' is missing")
    if len(values) > 1:
        raise HTTPException(400, f"Query parameter '{parameter}' is given {len(values)} times: {shown(values)}")
    if not values[0]:
        raise HTTPException(400, f"Query parameter '{parameter}' is empty: ''")
    try:
        return values[0], AssetId.parse(values[0])
    except InvalidAssetId as error:
        raise HTTPException(400, f"Query parameter '{parameter}': {error}") from None


def _json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")


def _refused(_: Request, error: Exception) -> Response:
    refusal = cast(HTTPException, error)
    return _json(wire.error_to_json(refusal.detail), refusal.status_code, refusal.headers)


def _failed(_: Request, __: Exception) -> Response:
    # No detail for the client. Starlette raises the exception again behind this answer, for the server's log.
    return _json(wire.error_to_json("Internal Server Error"), 500)
