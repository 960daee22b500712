"""The app mounted in Starlette and FastAPI apps, with and without the lifespan of the host."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair
from market_index_http import create_app
from tests.asgi import request_cached
from tests.command import SAMPLE
from tests.market_index_http.books import PAIR_LIST, stock
from tests.metrics import samples_of
from tests.service import Client, broken_rules, served
from tests.waiting import eventually

MOUNTING = Path(__file__).resolve().parents[2] / "docs" / "mounting.md"

ONE = OrderBook.from_levels(Pair(AssetId(b"\x01" * 28, b"one"), ADA), bids=[("1", 1)])
TWO = OrderBook.from_levels(Pair(AssetId(b"\x02" * 28, b"two"), ADA), bids=[("2", 2)])


async def hello(_: Any) -> PlainTextResponse:
    return PlainTextResponse("the host's own")


def starlette_host(path: str, app: Any) -> Any:
    return Starlette(routes=[Route("/hello", hello), Mount(path, app)])


def fastapi_host(path: str, app: Any) -> Any:
    host = FastAPI()
    host.add_route("/hello", hello)
    host.mount(path, app)
    return host


@pytest.mark.parametrize("path", ["", "/api/v1"])
@pytest.mark.parametrize("make_host", [starlette_host, fastapi_host])
def test_it_keeps_every_rule_when_mounted_under_any_path(make_host: Any, path: str):
    host = make_host(path, create_app(LiveIndex([ONE])))
    with served(host, stock(host)) as service, closing(Client(service.port)) as client:
        assert client.request("/hello").body == b"the host's own"
        assert broken_rules(client, path) == []
        lost = client.request(f"{path}{PAIR_LIST}/")
        assert (lost.status, "location" in lost.headers) == (404, False)


def test_several_apps_serve_several_indexes_side_by_side():
    shared, own = LiveIndex([ONE]), LiveIndex([TWO])
    inner = starlette_host("/deep", create_app(own))
    host = Starlette(routes=[Mount("/a", create_app(shared)), Mount("/b", create_app(shared)), Mount("/c", inner)])
    with served(host) as service:
        assert service.pair_list("/a").body == service.pair_list("/b").body
        assert service.pair_list("/c/deep").json["pairs"][0]["base"] == str(TWO.pair.base)
        shared.retract(ONE.pair)
        assert service.pair_list("/a").json == service.pair_list("/b").json == {"pairs": []}
        assert len(service.pair_list("/c/deep").json["pairs"]) == 1


@pytest.mark.decision(19)
def test_a_failure_is_500_without_detail_also_below_middleware_of_the_host_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def passing_on(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    host = starlette_host("/api", create_app(LiveIndex([ONE])))
    host.add_middleware(BaseHTTPMiddleware, dispatch=passing_on)

    def fail(*_: object, **__: object) -> bytes:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("market_index_http.snapshots.encoded_pair_list", fail)
    with served(host) as service:
        answer = service.pair_list("/api")
        assert (answer.status, answer.json) == (500, {"error": "Internal Server Error"})
        # The server logs after its response.
        eventually(lambda: "RuntimeError: a secret detail" in caplog.text)


def test_middleware_of_the_app_sees_every_request():
    async def stamping(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers.append("x-stamp", "seen")
        return response

    app = create_app(LiveIndex([ONE]))
    assert request_cached(app, PAIR_LIST) is not None
    app.add_middleware(BaseHTTPMiddleware, dispatch=stamping)
    assert request_cached(app, PAIR_LIST) is None
    for server in (stock(app), None):
        with served(app, server) as service:
            for target in (PAIR_LIST, PAIR_LIST, "/trading-view/order-book", "/nowhere"):
                assert service.request(target).headers["x-stamp"] == "seen"


def test_only_a_live_index_is_served():
    index: Any = MarketIndex([ONE])
    with pytest.raises(TypeError, match=r"live must be a LiveIndex, such as LiveIndex\(books\), got MarketIndex: <"):
        create_app(index)


def program_of_the_page(name: str, folder: Path) -> dict[str, Any]:
    """Run a program of the page, and return its names."""
    found = re.search(rf"^```python\n(# {name}\n.*?)^```$", MOUNTING.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return run_path(str(written(folder / name, found[1])))


def test_the_middleware_of_the_page_covers_the_host_and_the_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("API_KEY", "correct")
    host = program_of_the_page("guarded.py", tmp_path)["app"]
    host.add_route("/hello", hello)
    key = "Authorization: Bearer correct\r\n"
    with served(host, stock(host, lifespan=True)) as service:
        for target in ("/hello", f"/api{PAIR_LIST}", "/api/nowhere", "/openapi.json"):
            for headers in ("", "Authorization: Bearer wrong\r\n", "Authorization: correct\r\n", 2 * key):
                with closing(Client(service.port)) as client:
                    answer = client.request(target, headers=headers)
                assert (answer.status, answer.json) == (401, {"error": "a valid key is required"})
                assert answer.headers["www-authenticate"] == "Bearer"
        with closing(Client(service.port)) as client:
            assert client.request("/hello", headers=key).status == 200
            assert client.request(f"/api{PAIR_LIST}", headers=key).status == 200


def test_the_middleware_of_the_page_passes_no_request_without_a_configured_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("API_KEY", "")
    with served(program_of_the_page("guarded.py", tmp_path)["app"]) as service, closing(Client(service.port)) as client:
        for headers in ("", "Authorization: Bearer \r\n", "Authorization: Bearer\r\n"):
            assert client.request(f"/api{PAIR_LIST}", headers=headers).status == 401


def test_the_host_with_everything_works_each_time_its_lifespan_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    program = program_of_the_page("everything.py", tmp_path)
    for rejected in (0, 1, 0):
        written(tmp_path / "books.ndjson", "nonsense\n" * rejected + SAMPLE.read_text())
        host = program["app"]
        with served(host, stock(host, lifespan=True)) as service:
            health = service.request("/api/healthz")
            assert (health.status, health.json["pairs"]) == (200, 13)
            assert health.json["current_rejections"] == rejected, "the feed that is open must answer"
            with closing(Client(service.port)) as client:
                client.socket.sendall(b"GET /api/stream HTTP/1.1\r\nHost: test\r\n\r\n")
                assert client.socket.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
                assert samples_of(service.request("/api/metrics"))["market_index_streams", "app=api"] == 1
            paths = service.request("/api/openapi.json").json["paths"]
            own = ["/trading-view/pair-list", "/trading-view/order-book", "/stream", "/healthz", "/livez", "/readyz"]
            assert sorted(paths) == sorted([*own, "/metrics"])


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
