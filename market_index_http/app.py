"""The app: the two endpoints, and the error body of everything else."""

from __future__ import annotations

from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp

from market_index import AssetId, InvalidAssetId, LiveIndex, Pair, PairNotFound, wire
from market_index.errors import safe_repr
from market_index_http.bodies import Bodies, Body
from market_index_http.fast_path import FastPath
from market_index_http.routes import ORDER_BOOK_PATH, PAIR_LIST_PATH, ExactRoute, JsonResponse


def create_app(live: LiveIndex, *, max_age: int | None = None) -> Starlette:
    """Return an ASGI app that serves the current index of `live`: by itself, or mounted under any path of another app.

    It opens nothing and needs no lifespan: the owner of `live` fills it, before or while the app serves. Every error
    has the error body of the contract, `{"error": <message>}`.

    A response has an ETag and `Cache-Control: no-cache`: a client may cache it, and revalidates it each time. With
    `max_age` a client may reuse it for so many seconds without revalidation, and may see an old price for as long.

    >>> from market_index import LiveIndex
    >>> app = create_app(LiveIndex())
    >>> sorted(route.path for route in app.routes)
    ['/trading-view/order-book', '/trading-view/pair-list']

    Raises `ValueError` for a `max_age` that is not a whole number of seconds.
    """
    return _App(_Endpoints(live, Bodies(max_age)))


class _App(Starlette):
    """A Starlette app with the fast path before its routes."""

    def __init__(self, endpoints: _Endpoints) -> None:
        self._fast_path = endpoints.fast_path
        self._own_routes = [
            ExactRoute(PAIR_LIST_PATH, endpoints.pair_list),
            ExactRoute(ORDER_BOOK_PATH, endpoints.order_book),
        ]
        super().__init__(
            routes=self._own_routes, exception_handlers={HTTPException: _http_error, Exception: _server_error}
        )
        # A redirect would contain the host that the client named.
        self.router.redirect_slashes = False

    def build_middleware_stack(self) -> ASGIApp:
        """Return the app below all middleware; Starlette calls this once, before the first request."""
        stack = super().build_middleware_stack()
        if self.user_middleware or getattr(self, "max_body_size", None) is not None:
            return stack
        return self._fast_path.before(stack, self._has_its_routes_first)

    def _has_its_routes_first(self) -> bool:
        return self.router.routes[: len(self._own_routes)] == self._own_routes


class _Endpoints:
    """The two endpoints."""

    def __init__(self, live: LiveIndex, bodies: Bodies) -> None:
        self.fast_path = FastPath(live, bodies)
        self._live = live
        self._bodies = bodies

    async def pair_list(self, _: Request) -> Body:
        """Respond with every tracked pair."""
        return self._bodies.pair_list(self._live.current)

    async def order_book(self, request: Request) -> Body:
        """Respond with the book of the pair that the query names."""
        base, base_asset = _asset(request, "base")
        quote, quote_asset = _asset(request, "quote")
        try:
            book = self._live.current.order_book(Pair(base_asset, quote_asset))
        except PairNotFound:
            raise HTTPException(404, f"Pair {base}/{quote} not found") from None
        if (base, quote) != (str(base_asset), str(quote_asset)):
            return self._bodies.order_book_as_asked(book, base, quote)
        self.fast_path.remember(request.scope["query_string"], book.pair)
        return self._bodies.order_book(book)


def _asset(request: Request, parameter: str) -> tuple[str, AssetId]:
    """Return the asset that a query parameter names, as it was asked and as it is (decision 16)."""
    values = request.query_params.getlist(parameter)
    if not values:
        raise HTTPException(400, f"Query parameter '{parameter}' is missing")
    if len(values) > 1:
        raise HTTPException(400, f"Query parameter '{parameter}' is given {len(values)} times: {safe_repr(values)}")
    if not values[0]:
        raise HTTPException(400, f"Query parameter '{parameter}' is empty: ''")
    try:
        return values[0], AssetId.parse(values[0])
    except InvalidAssetId as error:
        raise HTTPException(400, f"Query parameter '{parameter}': {error}") from None


def _http_error(_: Request, error: Exception) -> JsonResponse:
    http_error = cast(HTTPException, error)
    return JsonResponse(wire.error_to_json(http_error.detail), http_error.status_code, http_error.headers)


def _server_error(_: Request, __: Exception) -> JsonResponse:
    # No detail for the client. Starlette raises the exception again after this response, for the server's log.
    return JsonResponse(wire.error_to_json("Internal Server Error"), 500)
