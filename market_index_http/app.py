"""Builds the ASGI app: one route per endpoint, and errors with the JSON body of the contract."""

from __future__ import annotations

from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope

from market_index import LiveIndex
from market_index.wire import error_to_json
from market_index_http.bodies import Bodies
from market_index_http.counters import Counters, counted
from market_index_http.endpoints import Endpoints
from market_index_http.operations.health import Health, health_routes
from market_index_http.operations.metrics import metrics_route
from market_index_http.operations.observation import Observation
from market_index_http.operations.openapi import openapi_route
from market_index_http.paths import ORDER_BOOK_PATH, PAIR_LIST_PATH
from market_index_http.routes import ExactRoute, JsonResponse, require_live
from market_index_http.waiting import DEFAULT_MAX_WAITING, Waits


def create_app(
    live: LiveIndex,
    *,
    max_age: int | None = None,
    max_wait: int = 0,
    max_waiting: int = DEFAULT_MAX_WAITING,
    health: Health | None = None,
    metrics: Counters | bool = False,
    openapi: bool = False,
) -> MarketIndexApp:
    """Return an ASGI app that serves the current index of `live`, standalone or mounted under any path of another app.

    The app opens nothing and needs no lifespan: the owner of `live` publishes into it, before or while the app serves.
    Every error has the error body of the contract, `{"error": <message>}`.

    A response has an ETag and `Cache-Control: no-cache`: a client may cache it, and revalidates it each time. With
    `max_age`, a client may reuse a response for that many seconds without revalidation, so a price may be that old.

    With `max_wait`, a request with `If-None-Match` and `Prefer: wait=20` waits up to that many seconds for a change,
    but no longer than `max_wait` seconds (RFC 7240). At most `max_waiting` requests wait. By default none waits,
    because a server waits at its shutdown for open requests: call `MarketIndexApp.end_waits` before.

    Three options add the routes of `market-index serve`:

    - `health`: the probes `/livez`, `/readyz` and `/healthz`.
    - `metrics`: `/metrics` in the Prometheus text format, with the state of the feed if there is `health`. With
      `Counters` that processes share, it reports the numbers of all of them.
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
        ValueError: `max_age` is not a whole number of seconds from 0 to 2^31, `max_wait` not one from 0 to 86,400, or
            `max_waiting` not a whole number from 0.
    """
    require_live(live)
    counters = metrics if isinstance(metrics, Counters) else Counters()
    waits = Waits(live, max_wait, max_waiting)
    app = MarketIndexApp(Endpoints(live, Bodies(max_age, counters), waits), Observation(live, counters, waits, health))
    if health is not None:
        app.router.routes += health_routes(live, health)
    if metrics is not False:
        app.router.routes.append(metrics_route(counters, app.observe))
    if openapi:
        app.router.routes.append(openapi_route())
    return app


class MarketIndexApp(Starlette):
    """A Starlette app with the fast path before its routes. `create_app` returns it."""

    def __init__(self, endpoints: Endpoints, observation: Observation) -> None:
        self._fast_path = endpoints.fast_path
        self._waits = endpoints.waits
        self._counters = endpoints.counters
        self._observation = observation
        self._pair_list = ExactRoute(PAIR_LIST_PATH, endpoints.pair_list)
        self._order_book = ExactRoute(ORDER_BOOK_PATH, endpoints.order_book)
        super().__init__(
            routes=[self._pair_list, self._order_book],
            exception_handlers={HTTPException: _http_error, Exception: _server_error},
        )
        # A redirect would contain the host that the client named.
        self.router.redirect_slashes = False

    def end_waits(self) -> None:
        """Respond to all requests that wait for a change, and let no further request wait.

        Any thread may call it. A program that serves the app calls it before its server shuts down.
        """
        self._waits.end()

    def observe(self) -> None:
        """Update the numbers of this process that `/metrics` reports, besides counts. Any thread may call it.

        The route does so itself. Of several processes that share `Counters`, each calls it about once per second. It
        takes time for each book that has changed since the last call, so an event loop calls it in a thread.
        """
        self._observation.observe()

    def cached_response(self, scope: Scope) -> tuple[Message, Message] | None:
        """Return the messages of a response, its start and its whole body, if it is known without a call of the app.

        That is so for most requests: see `market_index_http.fast_path`. A server that sends these messages itself saves
        the task of the call. None: it must call the app.
        """
        if self._is_customized() or not self._has_its_routes_first():
            return None
        messages = self._fast_path.messages(scope)
        return messages if type(messages) is tuple else None

    def _is_customized(self) -> bool:
        return bool(self.user_middleware) or getattr(self, "max_body_size", None) is not None

    def build_middleware_stack(self) -> ASGIApp:
        """Return the app below all middleware; Starlette calls this once, before the first request."""
        stack = counted(super().build_middleware_stack(), self._counters)
        if self._is_customized():
            return stack
        return self._fast_path.before(stack, self._has_its_routes_first)

    def _has_its_routes_first(self) -> bool:
        # By identity: routes compare equal if only their middleware differs.
        routes = self.router.routes
        return len(routes) >= 2 and routes[0] is self._pair_list and routes[1] is self._order_book


async def _http_error(_: Request, error: Exception) -> JsonResponse:
    http_error = cast(HTTPException, error)
    return JsonResponse(error_to_json(http_error.detail), http_error.status_code, http_error.headers)


async def _server_error(_: Request, __: Exception) -> JsonResponse:
    # The client gets no detail. Starlette raises the exception again after this response, for the server's log.
    return JsonResponse(error_to_json("Internal Server Error"), 500)
