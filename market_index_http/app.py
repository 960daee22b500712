"""The app: the two endpoints, the routes that its owner adds, and errors with the JSON body of the contract.

A response of an endpoint needs nothing of Starlette, so the app asks its endpoints first, and calls Starlette only for
errors and for all other routes. If middleware was added to the app, Starlette is always called, because middleware must
see every request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, cast, final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from market_index import LiveIndex
from market_index.errors import safe_repr
from market_index.wire import error_to_json
from market_index_http.bodies import JSON_FIELDS, Response, text_response
from market_index_http.order_book import OrderBookEndpoint
from market_index_http.pair_list import PairListEndpoint
from market_index_http.routes import ExactRoute
from market_index_http.snapshots import Snapshots, require_live

MAX_AGE_SECONDS: Final = 2**31
"""The longest time that Cache-Control can express everywhere (RFC 9111, 1.2.2)."""

OnResponse: TypeAlias = Callable[[str, int], object]
"""Is called with the path of the route, which is empty if there is none, and with the status of each response."""

Endpoint: TypeAlias = PairListEndpoint | OrderBookEndpoint


def create_app(
    live: LiveIndex,
    *,
    max_age: int | None = None,
    routes: Iterable[BaseRoute] = (),
    on_response: OnResponse | None = None,
) -> MarketIndexApp:
    """Return an ASGI app that serves the current index of `live`, standalone or mounted under any path of another app.

    The app opens nothing and needs no lifespan: the owner of `live` publishes into it, before or while the app serves.
    Every error has the error body of the contract, `{"error": <message>}`.

    Args:
        live: The index.
        max_age: A response has an ETag and `Cache-Control: no-cache`: a client may cache it, and revalidates it each
            time. With `max_age`, a client may reuse a response for that many seconds without revalidation, so a price
            may be that old.
        routes: The other routes of the app, which cannot be changed later: those of `market_index_http.stream` and
            `market_index_http.operating`, or your own.
        on_response: Is called before each response with the path of its route, empty if there is none, and the status.
            If routes share one endpoint, it is the path of the first. It must not raise: the response is then not sent.

    >>> from market_index import LiveIndex
    >>> from market_index_http.stream import Stream
    >>> live = LiveIndex()
    >>> app = create_app(live, routes=[Stream(live).route()])
    >>> [route.path for route in app.routes]
    ['/trading-view/pair-list', '/trading-view/order-book', '/stream']

    Raises:
        TypeError: `live` is not a `LiveIndex`, `routes` contains something that is not a route, or `on_response` cannot
            be called.
        ValueError: `max_age` is not a whole number of seconds from 0 to 2^31, or a route has the path of an endpoint.
    """
    require_live(live)
    if max_age is not None and (type(max_age) is not int or not 0 <= max_age <= MAX_AGE_SECONDS):
        raise ValueError(f"max_age must be None or a whole number of seconds from 0 to 2^31, got {safe_repr(max_age)}")
    if not (on_response is None or callable(on_response)):
        raise TypeError(f"on_response must be None or a function, got {safe_repr(on_response)}")
    snapshots = Snapshots(live, b"no-cache" if max_age is None else b"max-age=%d" % max_age)
    endpoints = PairListEndpoint(snapshots.current), OrderBookEndpoint(snapshots.current)
    return MarketIndexApp(endpoints, tuple(routes), on_response or (lambda *_: None))


@final
class MarketIndexApp(Starlette):
    """A Starlette app that answers for its endpoints itself. `create_app` returns it."""

    def __init__(self, endpoints: Iterable[Endpoint], routes: tuple[BaseRoute, ...], on_response: OnResponse) -> None:
        self._endpoints: Final = {endpoint.path: endpoint for endpoint in endpoints}
        self._on_response = on_response
        for route in routes:
            if not isinstance(route, BaseRoute):
                raise TypeError(f"routes must contain routes, such as Stream(live).route(), got {safe_repr(route)}")
            if getattr(route, "path", None) in self._endpoints:
                raise ValueError(f"routes must not have the path of an endpoint, got {safe_repr(route)}")
        handlers: dict[Any, Any] = {HTTPException: _http_error, Exception: _server_error}
        super().__init__(exception_handlers=handlers)
        # A tuple: Starlette finds the endpoints first, as this app does, and no route can be inserted before them.
        self.router.routes = (*map(_route, self._endpoints.values()), *routes)  # type: ignore[assignment]  # it is only read
        # A redirect would contain the host that the client named.
        self.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        response = self.cached_response(scope)
        if response is None:
            await super().__call__(scope, receive, self._reporting(scope, send))
        else:
            await send(response.start)
            await send(response.body)

    def cached_response(self, scope: Scope) -> Response | None:
        """Return the response to a request, and report it.

        A server that sends the messages of the response itself saves an asyncio task. The result is None if the server
        must call the app instead: for an error, for another route, or if the app has middleware.
        """
        if scope["type"] != "http" or self.user_middleware:
            return None
        # Starlette removes a root path only before a slash, with which the path of each endpoint starts.
        endpoint = self._endpoints.get(scope["path"].removeprefix(scope.get("root_path", "")))
        if endpoint is None or scope["method"] not in {"GET", "HEAD"}:
            return None
        try:
            response = endpoint(scope)
        except Exception:  # noqa: BLE001  # the route raises it too; Starlette responds to it and logs it
            return None
        self._on_response(endpoint.path, response.start["status"])
        return response

    def _reporting(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that reports a response before it is sent: a client that has received it finds it counted."""

        async def send_reported(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._on_response(self._path_of(scope.get("endpoint")), message["status"])
            await send(message)

        return send_reported

    def _path_of(self, endpoint: object) -> str:
        """Return the path of the route with this endpoint, which routing has set; empty if there is none."""
        return next((one.path for one in self.routes if isinstance(one, Route) and one.endpoint is endpoint), "")


def _route(endpoint: Endpoint) -> ExactRoute:
    async def respond(request: Request) -> Response:
        return endpoint(request.scope)

    return ExactRoute(endpoint.path, respond)


async def _http_error(request: Request, error: Exception) -> Response:
    http_error = cast(HTTPException, error)
    fields = (
        (name.lower().encode("latin-1"), text.encode("latin-1")) for name, text in (http_error.headers or {}).items()
    )
    return text_response(
        request.scope, http_error.status_code, error_to_json(http_error.detail), (*JSON_FIELDS, *fields)
    )


async def _server_error(request: Request, _: Exception) -> Response:
    # The client gets no detail. Starlette raises the exception again after this response, for the server's log.
    return text_response(request.scope, 500, error_to_json("Internal Server Error"))
