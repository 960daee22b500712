"""The app: a `Starlette` with the two endpoints and the routes that its owner adds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from market_index import LiveIndex
from market_index.errors import safe_repr
from market_index_http.endpoints import Endpoint, order_book, pair_list
from market_index_http.responses import error_response
from market_index_http.routes import exact_route
from market_index_http.snapshots import Snapshots


def create_app(
    live: LiveIndex,
    *,
    max_age: int | None = None,
    routes: Iterable[BaseRoute] = (),
    middleware: Iterable[Middleware] = (),
) -> Starlette:
    """Return an app of Starlette that serves the current index of `live`, standalone or mounted under any path.

    The app opens nothing and needs no lifespan: the owner of `live` publishes into it, before or while the app serves.
    Every error has the error body of the contract, `{"error": <message>}`.

    Args:
        live: The index.
        max_age: A response has an ETag and `Cache-Control: no-cache`: a client may cache it, and revalidates it each
            time. With `max_age`, a client may reuse a response for that many seconds without revalidation, so a price
            may be that old.
        routes: The other routes of the app: those of `market_index_http.stream` and `market_index_http.operating`, or
            your own. Those of the endpoints are before them.
        middleware: As that of `Starlette`.

    >>> from market_index import LiveIndex
    >>> from market_index_http.stream import Stream
    >>> live = LiveIndex()
    >>> app = create_app(live, routes=[Stream(live).route()])
    >>> [route.path for route in app.routes]
    ['/trading-view/order-book', '/trading-view/pair-list', '/stream']

    Raises:
        TypeError: `live` is not a `LiveIndex`.
        ValueError: `max_age` is not a whole number of seconds from 0 to 2^31.
    """
    given: object = live  # for mypy, it can only be a LiveIndex
    if type(given) is not LiveIndex:
        found = f"{type(given).__name__}: {safe_repr(given)}"
        raise TypeError(f"live must be a LiveIndex, such as LiveIndex(books), got {found}")
    # 2^31 is the longest time that Cache-Control can express everywhere (RFC 9111, 1.2.2).
    if max_age is not None and (type(max_age) is not int or not 0 <= max_age <= 2**31):
        raise ValueError(f"max_age must be None or a whole number of seconds from 0 to 2^31, got {safe_repr(max_age)}")
    snapshots = Snapshots(live, b"no-cache" if max_age is None else b"max-age=%d" % max_age)
    app = Starlette(
        # The one that is requested most is the first, because each route before it costs time.
        routes=[
            exact_route("/trading-view/order-book", Endpoint(snapshots, order_book)),
            exact_route("/trading-view/pair-list", Endpoint(snapshots, pair_list)),
            *routes,
        ],
        middleware=[*middleware],
        exception_handlers={HTTPException: _http_error, Exception: _server_error},
    )
    # A redirect would contain the host that the client named.
    app.router.redirect_slashes = False
    return app


def find_response(app: Starlette, scope: Scope) -> Response | None:
    """Return the response of an endpoint, which a server may then send without a call of the app and without a task.

    The result is None if the server must call the app: for another route or method, below a root path, if a route was
    inserted before those of the endpoints, and if the app has middleware, which must see every request.

    Args:
        app: An app of `create_app`.
        scope: The ASGI scope of an HTTP request.
    """
    if app.user_middleware or scope.get("root_path") or scope["method"] not in {"GET", "HEAD"}:
        return None
    for route in app.routes:
        if not (isinstance(route, Route) and isinstance(route.endpoint, Endpoint)):
            return None
        if route.path == scope["path"]:
            return route.endpoint.response(scope)
    return None


async def _http_error(_: Request, error: Any) -> Response:
    return error_response(error)


async def _server_error(_: Request, _error: Exception) -> Response:
    # The client gets no detail. Starlette raises the exception again after this response, for the server's log.
    return error_response(HTTPException(500))
