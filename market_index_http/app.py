"""Builds the ASGI app: one route per endpoint, and errors with the JSON body of the contract."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast, final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from market_index import LiveIndex
from market_index.errors import safe_repr
from market_index.wire import error_to_json
from market_index_http.bodies import JSON_FIELDS, Bodies, Response, text_response
from market_index_http.counters import Counters
from market_index_http.endpoints import Endpoints
from market_index_http.health import Health, health_routes
from market_index_http.routes import (
    OPENAPI_PATH,
    ORDER_BOOK_PATH,
    PAIR_LIST_PATH,
    STREAM_PATH,
    ExactRoute,
    file_route,
    path_of,
)
from market_index_http.stream import MAX_STREAMS, Streams

if TYPE_CHECKING:
    from market_index_http.metrics import MetricsCollector


def create_app(
    live: LiveIndex,
    *,
    max_age: int | None = None,
    stream: bool | int = False,
    health: Health | None = None,
    metrics: Counters | bool = False,
    openapi: bool = False,
) -> MarketIndexApp:
    """Return an ASGI app that serves the current index of `live`, standalone or mounted under any path of another app.

    The app opens nothing and needs no lifespan: the owner of `live` publishes into it, before or while the app serves.
    Every error has the error body of the contract, `{"error": <message>}`.

    A response has an ETag and `Cache-Control: no-cache`: a client may cache it, and revalidates it each time. With
    `max_age`, a client may reuse a response for that many seconds without revalidation, so a price may be that old.

    Four options add the routes of `market-index serve`:

    - `stream`: server-sent events at `/stream`, which tell a client of each change. `True` allows 1,000 streams, a
      number so many. uvicorn ends them at its shutdown; a program can call the method `end_streams` of the app.
    - `health`: the probes `/livez`, `/readyz` and `/healthz`.
    - `metrics`: `/metrics` for Prometheus, with the state of the feed if there is `health`. It requires the extra
      `metrics`. The attribute `collector` of the app has the same metrics for a registry of your own.
    - `openapi`: the description of the API at `/openapi.json`.

    >>> from market_index import LiveIndex
    >>> app = create_app(LiveIndex())
    >>> sorted(route.path for route in app.routes)
    ['/trading-view/order-book', '/trading-view/pair-list']
    >>> app = create_app(LiveIndex(), health=Health(max_stale=30), metrics=True, openapi=True)
    >>> [route.path for route in app.routes][2:]
    ['/healthz', '/livez', '/readyz', '/metrics', '/openapi.json']

    Raises:
        TypeError: `live` is not a `LiveIndex`.
        ValueError: `max_age` is not a whole number of seconds from 0 to 2^31.
    """
    if type(live) is not LiveIndex:
        raise TypeError(
            f"live must be a LiveIndex, such as LiveIndex(books), got {type(live).__name__}: {safe_repr(live)}"
        )
    counters = metrics if isinstance(metrics, Counters) else Counters()
    streams = Streams(live, MAX_STREAMS if stream is True else stream) if stream else None
    app = MarketIndexApp(live, Bodies(max_age), streams, counters, health)
    if health is not None:
        app.router.routes += health_routes(live, health)
    if metrics is not False:
        app.router.routes.append(app.collector.route())
    if openapi:
        app.router.routes.append(file_route(OPENAPI_PATH, (files("market_index_http") / "openapi.json").read_bytes()))
    return app


@final
class MarketIndexApp(Starlette):
    """A Starlette app that counts its responses. `create_app` returns it."""

    def __init__(
        self, live: LiveIndex, bodies: Bodies, streams: Streams | None, counters: Counters, health: Health | None
    ) -> None:
        self._live = live
        self._endpoints = Endpoints(live, bodies)
        self._streams = streams
        self._counters = counters
        self._health = health
        handlers: dict[Any, Any] = {HTTPException: _http_error, Exception: _server_error}
        super().__init__(
            routes=[ExactRoute(ORDER_BOOK_PATH, self._endpoints), ExactRoute(PAIR_LIST_PATH, self._endpoints)],
            exception_handlers=handlers,
        )
        if streams is not None:
            self.router.routes.append(ExactRoute(STREAM_PATH, streams))
        # A redirect would contain the host that the client named.
        self.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request, and count the response."""

        async def send_counted(message: Message) -> None:
            # Before it is sent, so that a client that has a response finds it counted.
            if message["type"] == "http.response.start":
                self._counters.count(path, message["status"])
            await send(message)

        path = path_of(scope) if scope["type"] == "http" else ""
        await super().__call__(scope, receive, send_counted)

    def cached_response(self, scope: Scope) -> tuple[Message, Message] | None:
        """Return the messages of the response to an HTTP request, its start and its whole body, and count the response.

        A server that sends them itself saves the task of a call, and skips all middleware and routes that were added to
        the app. None: it must call the app, because the response is an error, or is of another path.
        """
        path = path_of(scope)
        if path not in {ORDER_BOOK_PATH, PAIR_LIST_PATH} or scope["method"] not in {"GET", "HEAD"}:
            return None
        try:
            response = self._endpoints.response(scope, path)
        except Exception:  # noqa: BLE001  # the route raises it too; Starlette responds to it and logs it
            return None
        self._counters.count(path, response.start["status"])
        return response.start, response.body

    def end_streams(self) -> None:
        """End all streams. Any thread may call it.

        uvicorn does so at its shutdown, half a second later. A program that calls it before saves this time.
        """
        if self._streams is not None:
            self._streams.end()

    @cached_property
    def collector(self) -> MetricsCollector:
        """The metrics of this app, to be registered in a registry of prometheus-client.

        Raises:
            ModuleNotFoundError: prometheus-client is not installed.
        """
        try:
            from market_index_http.metrics import MetricsCollector  # noqa: PLC0415  # it needs the extra `metrics`
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                f"metrics need {missing.name}, which comes with the extra metrics: pip install '.[metrics]'",
                name=missing.name,
            ) from None
        return MetricsCollector(
            self._live, self._counters, () if self._streams is None else self._streams, self._health
        )


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
