"""The fast path: when it applies, what it never skips, and that it responds as the routes do."""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from market_index import LiveIndex, OrderBook, wire
from market_index_http import create_app, endpoints
from market_index_http.bodies import Bodies
from market_index_http.compression import GzipEncoder
from market_index_http.fast_path import FastPath
from market_index_http.waiting import Waits
from tests.market_index_http.books import LARGE, MIDDLE, PAIR_LIST, Counted, book, fetch, numbered_pair, target
from tests.service import Client, served


class TestCachedQueries:
    """Common requests are answered before routing."""

    def test_a_query_that_was_answered_is_not_parsed_again(self, monkeypatch: pytest.MonkeyPatch):
        live = LiveIndex([MIDDLE])
        parse = Counted(endpoints._asset)
        monkeypatch.setattr(endpoints, "_asset", parse)
        with served(create_app(live)) as service:
            answers = {service.request(target(MIDDLE.pair)).body for _ in range(3)}
            assert (len(answers), parse.calls) == (1, 2)
            live.publish(book(2, 31))
            assert len(service.request(target(MIDDLE.pair)).json["bids"]) == 31
            live.retract(MIDDLE.pair)
            assert service.request(target(MIDDLE.pair)).status == 404
            live.publish(MIDDLE)
            assert service.request(target(MIDDLE.pair)).status == 200

    @pytest.mark.parametrize("extra", ["&x=1", "&", "&base=", "#", "%20"])
    def test_only_plain_spellings_are_cached(self, extra: str):
        live = LiveIndex([MIDDLE])
        app = create_app(live)
        base, quote = str(MIDDLE.pair.base), "ADA"
        spellings = [f"base={base.replace(':', colon)}&quote={quote}" for colon in (":", "%3A", "%3a")]
        spellings += [f"base={base.upper().replace(':', colon)}&quote={quote}" for colon in (":", "%3A", "%3a")]
        spellings += [f"quote={quote}&base={base}", f"base={base}&quote=ADA{extra}", f"base={base}&quote=%41DA"]
        with served(app) as service:
            for query in spellings:
                service.request(f"/trading-view/order-book?{query}")
        assert len(app._fast_path._pairs) == 4

    def test_the_number_of_cached_queries_is_limited(self):
        live = LiveIndex([book(number, 1) for number in range(10)])
        path = FastPath(live, Bodies(), Waits(live), max_queries=3)
        for pair in map(numbered_pair, sorted([*range(10)] * 3)):
            where, _, query = target(pair).encode().partition(b"?")
            path.remember(query, pair)
            scope = {"type": "http", "method": "GET", "path": where.decode(), "query_string": query, "headers": []}
            _, content = path.messages(scope) or ()
            assert wire.order_book_from_json(content["body"]).pair == pair
            assert len(path._pairs) <= 3
            assert len(path._current.bodies) <= 3

    def test_routes_that_change_while_the_app_serves_take_effect(self):
        app = create_app(LiveIndex([MIDDLE]))
        with served(app) as service:
            assert service.request(PAIR_LIST).status == service.request(target(MIDDLE.pair)).status == 200
            app.router.routes.insert(0, Mount("/trading-view", teapot))
            assert service.request(PAIR_LIST).status == service.request(target(MIDDLE.pair)).status == 418
            app.router.routes.clear()
            assert service.request(PAIR_LIST).status == 404

    def test_a_failed_compression_is_500_and_later_requests_succeed(self, monkeypatch: pytest.MonkeyPatch):
        def failing(*_: object) -> bytes:
            raise RuntimeError("a secret detail")

        app = create_app(LiveIndex([MIDDLE, LARGE]))
        with served(app) as service:
            client = Client(service.port)
            plain = {one.pair: fetch(client, target(one.pair)).body for one in (MIDDLE, LARGE)}
            monkeypatch.setattr(GzipEncoder, "whole", failing)
            monkeypatch.setattr(GzipEncoder, "slices", failing)
            for one in (MIDDLE, LARGE):
                for _ in range(2):
                    answer = fetch(client, target(one.pair), accept_encoding="gzip")
                    assert (answer.status, answer.json) == (500, {"error": "Internal Server Error"})
                    client.close()
                    client = Client(service.port)
            monkeypatch.undo()
            for one in (MIDDLE, LARGE):
                answer = fetch(client, target(one.pair), accept_encoding="gzip")
                assert gzip.decompress(answer.body) == plain[one.pair]
            client.close()

    @pytest.mark.parametrize(
        ("path", "root_path", "status"),
        [
            (PAIR_LIST, "", 200),
            (PAIR_LIST, None, 200),
            (f"/api{PAIR_LIST}", "/api", 200),
            (PAIR_LIST, "/trading-view", 404),
            (f"/api{PAIR_LIST}", "", 404),
            (f"{PAIR_LIST}{PAIR_LIST}", PAIR_LIST, 200),
        ],
    )
    def test_paths_are_those_that_starlette_sees(self, path: str, root_path: str | None, status: int):
        app, sent = create_app(LiveIndex([MIDDLE])), []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
        for given_root in ({"root_path": root_path}, {} if root_path is None else {"root_path": root_path}):
            asyncio.run(app(scope | given_root, None, send))  # type: ignore[arg-type]  # nothing is received
            assert sent[0]["status"] == status
            sent.clear()

    def test_a_websocket_is_handled_by_starlette(self):
        app, sent = create_app(LiveIndex([MIDDLE])), []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        scope = {"type": "websocket", "path": PAIR_LIST, "root_path": "", "query_string": b"", "headers": []}
        asyncio.run(app(scope, receive, send))
        assert [message["type"] for message in sent] == ["websocket.close"]

    def test_an_index_that_is_no_longer_current_is_freed(self):
        live = LiveIndex([book(number, 1) for number in range(5)])
        with served(create_app(live)) as service:
            for _ in range(2):
                service.request(target(numbered_pair(1)))
                service.request(PAIR_LIST)
            index, one = ref(live.current), ref(live.current.order_book(numbered_pair(1)))
            live.retract(*live.current)
            gc.collect()
            assert index() is None
            assert one() is None

    def test_headers_that_a_host_adds_are_only_in_that_response(self):
        inner = create_app(LiveIndex([MIDDLE]))

        async def host(scope: Scope, receive: Receive, send: Send) -> None:
            async def stamping(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"].append((b"x-stamp", b"1"))
                await send(message)

            await inner(scope, receive, stamping)

        with served(host) as service:
            for where in (PAIR_LIST, target(MIDDLE.pair)):
                lengths = {len(str(service.request(where).headers)) for _ in range(4)}
                assert len(lengths) == 1


async def call(app: ASGIApp, path: str = PAIR_LIST, method: str = "GET") -> int:
    """Return the status with which an app responds."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 10, "more_body": False}

    await app(scope_of(path, method), receive, send)
    return int(sent[0]["status"])


def scope_of(path: str = PAIR_LIST, method: str = "GET") -> Scope:
    return {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [], "root_path": ""}


async def teapot(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 418, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


class Teapot:
    """Middleware that responds to every request itself."""

    def __init__(self, app: ASGIApp) -> None:
        del app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await teapot(scope, receive, send)


def with_middleware(app: Starlette) -> None:
    app.add_middleware(Teapot)


def with_a_route_before_its_own(app: Starlette) -> None:
    app.router.routes.insert(0, Mount("/", teapot))


def with_middleware_of_a_route(app: Starlette) -> None:
    own = app.router.routes[0]
    assert isinstance(own, Route)
    app.router.routes[0] = Route(own.path, own.endpoint, methods=["GET"], middleware=[Middleware(Teapot)])


def with_another_router(app: Starlette) -> None:
    app.router = Router([Mount("/", teapot)])


def with_its_routes_replaced(app: Starlette) -> None:
    app.router.routes[:] = [Mount("/", teapot)]


def with_a_decorated_middleware_function(app: Starlette) -> None:
    app.add_middleware(BaseHTTPMiddleware, dispatch=lambda request, call_next: answer_of(418))


async def answer_of(status: int) -> Response:
    return Response(status_code=status)


CUSTOMIZATIONS = [
    with_middleware,
    with_a_decorated_middleware_function,
    with_a_route_before_its_own,
    with_another_router,
    with_its_routes_replaced,
    with_middleware_of_a_route,
]


class TestCustomizations:
    """Every customization that Starlette supports takes effect, although the response is cached."""

    @pytest.mark.parametrize("customize", CUSTOMIZATIONS)
    def test_before_the_first_request(self, customize: Callable[[Starlette], None]):
        app = create_app(LiveIndex([MIDDLE]))
        customize(app)
        assert app.cached_response(scope_of()) is None
        assert asyncio.run(call(app)) == 418

    # Starlette itself accepts no middleware and no other router after the first request.
    @pytest.mark.parametrize(
        "customize", [with_a_route_before_its_own, with_its_routes_replaced, with_middleware_of_a_route]
    )
    def test_after_the_first_request(self, customize: Callable[[Starlette], None]):
        app = create_app(LiveIndex([MIDDLE]))
        assert asyncio.run(call(app)) == 200
        assert app.cached_response(scope_of()) is not None
        customize(app)
        assert app.cached_response(scope_of()) is None
        assert asyncio.run(call(app)) == 418

    def test_middleware_after_the_first_request_is_rejected_by_starlette(self):
        app = create_app(LiveIndex([MIDDLE]))
        assert asyncio.run(call(app)) == 200
        with pytest.raises(RuntimeError, match="Cannot add middleware after an application has started"):
            with_middleware(app)

    def test_exception_handlers_take_effect(self):
        app = create_app(LiveIndex([MIDDLE]))
        app.add_exception_handler(HTTPException, lambda request, error: Response(status_code=418))
        assert asyncio.run(call(app, "/nowhere")) == 418
        assert asyncio.run(call(app, method="POST")) == 418

    def test_a_host_that_wraps_the_app_sees_every_request(self):
        inner, paths = create_app(LiveIndex([MIDDLE])), []

        async def host(scope: Scope, receive: Receive, send: Send) -> None:
            paths.append(scope["path"])
            await inner(scope, receive, send)

        for _ in range(3):
            assert asyncio.run(call(host)) == 200
        assert paths == [PAIR_LIST] * 3

    def test_dependencies_and_state_of_the_app_are_untouched(self):
        app = create_app(LiveIndex([MIDDLE]))
        app.state.owner = "host"
        assert asyncio.run(call(app)) == 200
        assert app.state.owner == "host"
        assert app.url_path_for("pair_list") == PAIR_LIST

    def test_a_limit_on_request_bodies_turns_it_off(self, monkeypatch: pytest.MonkeyPatch):
        app = create_app(LiveIndex([MIDDLE]))
        app.max_body_size = 5
        monkeypatch.setattr(FastPath, "messages", pytest.fail)
        assert asyncio.run(call(app)) == 200


@pytest.mark.parametrize(("levels", "is_cached"), [(10, True), (2_000, True), (20_000, False)])
def test_a_body_of_one_message_needs_no_call_of_the_app(levels: int, is_cached: bool):
    """A larger body is sent in slices, each once the client has read the one before."""
    one = OrderBook.from_levels(MIDDLE.pair, bids=[(str(price), 2**60) for price in range(1, levels)])
    app = create_app(LiveIndex([one]))
    scope = scope_of("/trading-view/order-book")
    scope["query_string"] = f"base={one.pair.base}&quote={one.pair.quote}".encode()
    assert app.cached_response(scope) is None
    with served(app) as service:
        body = service.request(target(one.pair)).body
    assert body == wire.order_book_to_json(one)
    found = app.cached_response(scope)
    assert (found is not None) == is_cached
    assert found is None or found[1]["body"] == body
