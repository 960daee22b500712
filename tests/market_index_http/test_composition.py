"""What a host composes: routes are added and described, options are checked, and apps are counted apart."""

from __future__ import annotations

import json
import subprocess
import sys
from math import inf, nan
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from market_index import LiveIndex
from market_index_http import create_app
from market_index_http.operating import Health, Metrics, description, description_route
from market_index_http.stream import Stream
from tests.asgi import request, request_cached, response_of_call, scope_of
from tests.market_index_http.books import MIDDLE, PAIR_LIST

BOOK = "/trading-view/order-book"


def test_the_two_endpoints_import_nothing_else():
    program = """import sys, market_index_http
print(*sorted(name for name in sys.modules if name.startswith(("market_index_http.", "prometheus"))))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    names = ["app", "endpoints", "queries", "responses", "routes", "snapshots"]
    assert done.stdout.split() == [f"market_index_http.{name}" for name in names]


def test_the_description_is_of_the_routes_of_the_app():
    live = LiveIndex()
    app = create_app(live, routes=[description_route(), Stream(live).route()])
    assert set(json.loads(request(app, "/openapi.json").body)["paths"]) == {PAIR_LIST, BOOK, "/stream"}


def test_a_description_has_what_its_owner_gives():
    key = {"key": {"type": "http", "scheme": "bearer"}}
    given: Any = {"title": "Mine", "version": "7", "servers": [{"url": "https://api.example"}], "security": key}
    app = create_app(LiveIndex(), routes=[description_route(**given)])
    described = json.loads(request(app, "/openapi.json").body)
    assert described == description(app, **given)
    assert described["info"].items() >= {"title": "Mine", "version": "7"}.items()
    assert (described["servers"], described["security"]) == ([{"url": "https://api.example"}], [{"key": []}])
    assert described["components"]["securitySchemes"] == key
    plain = description(app)
    assert (plain["info"]["title"], plain["security"]) == ("Market Index Read API", [])
    with pytest.raises(TypeError, match="description"):
        description_route(titel="Mine")


def test_only_metrics_need_their_extra():
    program = """import sys
sys.modules["prometheus_client"] = None
from market_index_http.operating import Health
from market_index_http.operating import Metrics"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    message = "Metrics needs the extra metrics: pip install 'PATH[metrics]' of a clone or a wheel"
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {message} (prometheus_client is not installed)"


async def fail(_: Any) -> PlainTextResponse:
    raise RuntimeError


async def own(_: Any) -> PlainTextResponse:
    return PlainTextResponse("the host's own")


def test_a_route_of_the_host_is_served_and_never_takes_the_place_of_an_endpoint():
    live = LiveIndex([MIDDLE])
    app = create_app(live, routes=iter([Route("/own", own), Mount("/trading-view", PlainTextResponse("mounted"))]))
    assert request(app, "/own").body == b"the host's own"
    assert request(app, "/trading-view/other").body == b"mounted"
    assert "pairs" in json.loads(request(app, PAIR_LIST).body)
    assert request(create_app(live, routes=[Route(PAIR_LIST, own)]), PAIR_LIST).body != b"the host's own"
    app.router.routes.insert(0, Route(PAIR_LIST, own))
    assert request(app, PAIR_LIST).body == b"the host's own"
    assert request_cached(app, BOOK) is None


@pytest.mark.parametrize("status", [204, 304])
def test_an_exception_without_content_has_no_body(status: int):
    """A body would be read as the start of the next response of the connection."""

    async def none(_: Any) -> PlainTextResponse:
        raise HTTPException(status, headers={"X-Own": "1"})

    answer = request(create_app(LiveIndex(), routes=[Route("/none", none)]), "/none")
    assert (answer.status, answer.headers, answer.body) == (status, {"x-own": "1"}, b"")


def test_the_cache_control_of_an_error_of_the_host_is_kept():
    async def gone(_: Any) -> PlainTextResponse:
        raise HTTPException(410, headers={"cache-control": "max-age=60"})

    answer = request(create_app(LiveIndex(), routes=[Route("/gone", gone)]), "/gone")
    assert (answer.headers["cache-control"], answer.body) == ("max-age=60", b'{"error":"Gone"}')


def test_a_post_of_the_host_at_the_path_of_an_endpoint_is_reached():
    app = create_app(LiveIndex(), routes=[Route(BOOK, own, methods=["POST"])])
    assert request(app, BOOK, "POST").body == b"the host's own"
    assert request(app, BOOK).status == 400


@pytest.mark.parametrize("seconds", [nan, -1, inf])
@pytest.mark.parametrize("name", ["max_stale", "max_quiet"])
def test_an_invalid_limit_of_health_is_rejected(name: str, seconds: Any):
    with pytest.raises(ValueError, match=f"'{name}' must be "):
        Health(**{name: seconds})
    health = Health(max_stale=0, max_quiet=0.5)
    with pytest.raises(ValueError, match=name):
        setattr(health, name, seconds)


class TestMetrics:
    """Several apps in one registry."""

    def test_duplicates_are_rejected_before_a_scrape(self):
        metrics, registry = Metrics(), CollectorRegistry()
        app, live = create_app(LiveIndex()), LiveIndex()
        metrics.watch(app, live)
        with pytest.raises(ValueError, match="name must differ from the names of the other apps, got ''"):
            metrics.watch(app, live)
        registry.register(metrics)
        with pytest.raises(ValueError, match="Duplicated timeseries"):
            registry.register(Metrics())

    @pytest.mark.parametrize("root_path", ["", "/api"])
    def test_a_response_is_counted_by_the_path_of_a_route(self, root_path: str):
        """Also below middleware that copies the scope, and of a nested app that has the path of a route."""

        def copying(inner: Any) -> Any:
            async def call(scope: Any, receive: Any, send: Any) -> None:
                await inner(dict(scope), receive, send)

            return call

        nested = Mount("/nested", create_app(LiveIndex()))
        adapter = create_app(LiveIndex(), routes=[nested, Route("/fails", fail)], middleware=[Middleware(copying)])
        app = Metrics().watch(adapter, LiveIndex())
        for path in (PAIR_LIST, BOOK, "/nowhere", f"/nested{PAIR_LIST}", "/fails"):
            response_of_call(app, scope_of(root_path + path) | {"root_path": root_path})
        response_of_call(app, scope_of(root_path + PAIR_LIST, "POST") | {"root_path": root_path})
        found = {
            path: {status: n for status, n in counts.statuses.items() if n} for path, counts in app.responses.items()
        }
        assert found == {
            PAIR_LIST: {200: 1, 405: 1},
            BOOK: {400: 1},
            "/fails": {500: 1},
            "other": {404: 1, 200: 1},
        }
