"""The app: the two endpoints, the routes that its owner adds, and errors with the JSON body of the contract.

A response of an endpoint needs nothing of Starlette, so the app asks the endpoint first, and calls Starlette only for
errors and for all other routes. Middleware of the app itself sees every request: with it, Starlette is always called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias, cast, final

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
from market_index_http.snapshots import Snapshots

MAX_AGE_SECONDS: Final = 2**31
"""The longest time that Cache-Control can express everywhere (RFC 9111, 1.2.2)."""

OnResponse: TypeAlias = Callable[[str, int], object]
"""Is called with the path of the route, which is empty if there is none, and with the status of each response."""


class Endpoint(Protocol):
    """A path, and what a request for it is answered."""

    @property
    def path(self) -> str:
        """The path, relative to the path of the mount."""

    def __call__(self, scope: Scope) -> Response:
        """Return the response. Raises `HTTPException` if it is an error."""


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
        routes: What the app has besides the two endpoints: those of `market_index_http.stream` and
            `market_index_http.operating`, or your own.
        on_response: Is called before each response with the path of its route, empty if there is none, and the status.

    >>> from market_index import LiveIndex
    >>> from market_index_http.stream import Stream
    >>> live = LiveIndex()
    >>> app = create_app(live, routes=[Stream(live).route()])
    >>> [route.path for route in app.routes]
    ['/trading-view/pair-list', '/trading-view/order-book', '/stream']

    Raises:
        TypeError: `live` is not a `LiveIndex`.
        ValueError: `max_age` is not a whole number of seconds from 0 to 2^31.
    """
    if type(live) is not LiveIndex:
        raise TypeError(
            f"live must be a LiveIndex, such as LiveIndex(books), got {type(live).__name__}: {safe_repr(live)}"
        )
    if max_age is not None and (type(max_age) is not int or not 0 <= max_age <= MAX_AGE_SECONDS):
        raise ValueError(f"max_age must be None or a whole number of seconds from 0 to 2^31, got {safe_repr(max_age)}")
    snapshots = Snapshots(live, b"no-cache" if max_age is None else b"max-age=%d" % max_age)
    endpoints = PairListEndpoint(snapshots.current), OrderBookEndpoint(snapshots.current)
    return MarketIndexApp(endpoints, routes, on_response)


@final
class MarketIndexApp(Starlette):
    """A Starlette app that answers for its endpoints itself. `create_app` returns it."""

    def __init__(
        self, endpoints: Iterable[Endpoint], routes: Iterable[BaseRoute], on_response: OnResponse | None
    ) -> None:
        self._endpoints: Final = {one.path: one for one in endpoints}
        self._on_response = on_response
        handlers: dict[Any, Any] = {HTTPException: _http_error, Exception: _server_error}
        super().__init__(routes=[*map(_route, self._endpoints.values()), *routes], exception_handlers=handlers)
        # A redirect would contain the host that the client named.
        self.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        response = self.cached_response(scope)
        if response is not None:
            await send(response.start)
            await send(response.body)
        elif self._on_response is None or scope["type"] != "http":
            await super().__call__(scope, receive, send)
        else:
            await super().__call__(scope, receive, self._reporting(scope, send))

    def cached_response(self, scope: Scope) -> Response | None:
        """Return the response to a request, and report it.

        A server that sends its messages itself saves the task of a call. None: it must call the app, because the
        response is an error, or is of another route, or because the app has middleware.
        """
        if scope["type"] != "http":
            return None
        path, root_path = scope["path"], scope.get("root_path")
        # All paths start with a slash: what is found without a prefix is what Starlette finds, which cuts at a slash.
        endpoint = self._endpoints.get(path.removeprefix(root_path) if root_path else path)
        if endpoint is None or scope["method"] not in {"GET", "HEAD"} or self.user_middleware:
            return None
        try:
            response = endpoint(scope)
        except Exception:  # noqa: BLE001  # the route raises it too; Starlette responds to it and logs it
            return None
        if self._on_response is not None:
            self._on_response(endpoint.path, response.start["status"])
        return response

    def _reporting(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that reports a response before it is sent, so that a client that has it finds it counted."""
        report = cast(OnResponse, self._on_response)

        async def send_reported(message: Message) -> None:
            if message["type"] == "http.response.start":
                report(self._path_of(scope.get("endpoint")), message["status"])  # routing has set it
            await send(message)

        return send_reported

    def _path_of(self, endpoint: object) -> str:
        """Return the path of the route with this endpoint; empty if there is none."""
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
