"""The app mounted in Starlette and FastAPI apps, with and without the lifespan of the host."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from runpy import run_path
from typing import Any, Literal

import pytest
import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair
from market_index_http import create_app
from tests.asgi import request
from tests.command import SAMPLE
from tests.market_index_http.books import PAIR_LIST
from tests.metrics import samples_of
from tests.service import Client, served

MOUNTING = Path(__file__).resolve().parents[2] / "docs" / "mounting.md"

ONE = OrderBook.from_levels(Pair(AssetId(b"\x01" * 28, b"one"), ADA), bids=[("1", 1)])
TWO = OrderBook.from_levels(Pair(AssetId(b"\x02" * 28, b"two"), ADA), bids=[("2", 2)])


async def hello(_: Any) -> PlainTextResponse:
    return PlainTextResponse("the host's own")


def stock(app: Any) -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_config=None))


def starlette_host(routes: list[Mount], lifespan: Any = None) -> Any:
    return Starlette(routes=[Route("/hello", hello), *routes], lifespan=lifespan)


def fastapi_host(routes: list[Mount], lifespan: Any = None) -> Any:
    host = FastAPI(lifespan=lifespan)
    host.add_route("/hello", hello)
    for route in routes:
        host.mount(route.path, route.app)
    return host


@pytest.mark.parametrize("make_host", [starlette_host, fastapi_host])
@pytest.mark.parametrize("lifespan", ["on", "off"])
@pytest.mark.parametrize("path", ["", "/api", "/api/v1"])
def test_it_responds_when_mounted_under_any_path(make_host, lifespan: Literal["on", "off"], path: str):
    live = LiveIndex()

    @asynccontextmanager
    async def publish_at_startup(_: Any) -> AsyncIterator[None]:
        live.publish(ONE)
        yield

    if lifespan == "off":
        live.publish(ONE)
    host = make_host([Mount(path, create_app(live))], publish_at_startup if lifespan == "on" else None)
    with served(host, uvicorn.Server(uvicorn.Config(host, lifespan=lifespan, ws="none", log_config=None))) as service:
        assert service.request("/hello").body == b"the host's own"
        assert len(service.pair_list(path).json["pairs"]) == 1
        assert service.order_book(str(ONE.pair.base), "ADA", path).json["bids"][0]["price"] == "1"
        missing = service.order_book("ADA", "ADA", path)
        assert (missing.status, missing.json) == (404, {"error": "Pair ADA/ADA not found"})
        assert service.request(f"{path}/trading-view/order-book?base=x").status == 400
        wrong = service.request(f"{path}/trading-view/pair-list", "POST")
        assert (wrong.status, wrong.json) == (405, {"error": "Method Not Allowed"})
        for nowhere in ("/trading-view/pair-list/", "/trading-view/pair-list%0A", "/nowhere"):
            lost = service.request(path + nowhere)
            assert (lost.status, lost.json) == (404, {"error": "Not Found"})
            assert "location" not in lost.headers


def test_several_apps_serve_several_indexes_side_by_side():
    shared, own = LiveIndex([ONE]), LiveIndex([TWO])
    inner = starlette_host([Mount("/deep", create_app(own))])
    with served(
        starlette_host([Mount("/a", create_app(shared)), Mount("/b", create_app(shared)), Mount("/c", inner)])
    ) as (service):
        assert service.pair_list("/a").body == service.pair_list("/b").body
        assert service.pair_list("/c/deep").json["pairs"][0]["base"] == str(TWO.pair.base)
        shared.retract(ONE.pair)
        assert service.pair_list("/a").json == service.pair_list("/b").json == {"pairs": []}
        assert len(service.pair_list("/c/deep").json["pairs"]) == 1


def test_a_failure_has_the_error_body_below_middleware_of_the_host(monkeypatch: pytest.MonkeyPatch):
    async def passing_on(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    host = starlette_host([Mount("/api", create_app(LiveIndex([ONE])))])
    host.add_middleware(BaseHTTPMiddleware, dispatch=passing_on)

    def fail(*_: object, **__: object) -> bytes:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("market_index_http.bodies.encoded_pair_list", fail)
    with served(host) as service:
        answer = service.pair_list("/api")
        assert (answer.status, answer.json) == (500, {"error": "Internal Server Error"})


def test_middleware_of_the_app_sees_every_request():
    """Also those whose response is cached: the command alone asks for a cached response before the app."""

    async def stamping(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["x-stamp"] = "seen"
        return response

    app = create_app(LiveIndex([ONE]))
    app.add_middleware(BaseHTTPMiddleware, dispatch=stamping)
    with served(app, stock(app)) as service:
        for target in (PAIR_LIST, PAIR_LIST, "/trading-view/order-book", "/nowhere"):
            assert service.request(target).headers["x-stamp"] == "seen"


def test_header_fields_that_middleware_adds_are_only_in_that_response():
    app = create_app(LiveIndex([ONE]))

    async def adding(scope: Any, receive: Any, send: Any) -> None:
        async def send_more(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-added", b"once"))
            await send(message)

        await app(scope, receive, send_more)

    for _ in range(2):
        assert request(adding, PAIR_LIST).headers["x-added"] == "once"
    assert "x-added" not in request(app, PAIR_LIST).headers


def test_only_a_live_index_is_served():
    index: Any = MarketIndex([ONE])
    with pytest.raises(TypeError, match=r"live must be a LiveIndex, such as LiveIndex\(books\), got MarketIndex: <"):
        create_app(index)


def program_of_the_page(name: str, folder: Path) -> dict[str, Any]:
    """Run a program of the page, and return its names."""
    found = re.search(rf"^```python\n(# {name}\n.*?)^```$", MOUNTING.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return run_path(str(written(folder / name, found[1])))


KEY = "Authorization: Bearer correct\r\n"


def require_key(authorization: str = Header("")) -> None:
    if authorization != "Bearer correct":
        raise HTTPException(401)


def test_dependencies_of_fastapi_do_not_cover_a_mount():
    """The trap that docs/mounting.md describes."""
    host = FastAPI(dependencies=[Depends(require_key)])
    host.add_api_route("/own", lambda: "own")
    host.mount("/api", create_app(LiveIndex([ONE])))
    with served(host) as service:
        assert service.request("/own").status == 401
        assert service.pair_list("/api").status == 200


@pytest.mark.parametrize("make_host", [starlette_host, fastapi_host])
def test_the_middleware_of_the_page_covers_a_mount(make_host, tmp_path: Path):
    require = program_of_the_page("guarded.py", tmp_path)["RequireKey"]
    host = make_host([Mount("/api", create_app(LiveIndex([ONE])))])
    host.add_middleware(require, key="correct")
    wrong = ("", "Authorization: Bearer wrong\r\n", "Authorization: correct\r\n", 2 * KEY)
    with served(host) as service:
        for target in ("/hello", "/api/trading-view/pair-list", "/api/nowhere", "/openapi.json"):
            for headers in wrong:
                with closing(Client(service.port)) as client:
                    answer = client.request(target, headers=headers)
                assert (answer.status, answer.json) == (401, {"error": "a valid key is required"})
                assert answer.headers["www-authenticate"] == "Bearer"
        with closing(Client(service.port)) as client:
            assert client.request("/hello", headers=KEY).status == 200
            assert len(client.request("/api/trading-view/pair-list", headers=KEY).json["pairs"]) == 1


def test_the_middleware_of_the_page_can_cover_only_the_mount(tmp_path: Path):
    require = program_of_the_page("guarded.py", tmp_path)["RequireKey"]
    with served(starlette_host([Mount("/api", require(create_app(LiveIndex([ONE])), "correct"))])) as service:
        assert service.request("/hello").status == 200
        assert service.pair_list("/api").status == 401


def test_the_middleware_of_the_page_passes_no_request_without_a_configured_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("API_KEY", "")
    with served(program_of_the_page("guarded.py", tmp_path)["app"]) as service, closing(Client(service.port)) as client:
        for headers in ("", "Authorization: Bearer \r\n", "Authorization: Bearer\r\n"):
            assert client.request("/api/trading-view/pair-list", headers=headers).status == 401


def test_the_middleware_of_the_page_lets_the_lifespan_run(tmp_path: Path):
    require = program_of_the_page("guarded.py", tmp_path)["RequireKey"]
    live = LiveIndex()

    @asynccontextmanager
    async def publish_at_startup(_: Any) -> AsyncIterator[None]:
        live.publish(ONE)
        yield

    host = starlette_host([Mount("/api", create_app(live))], publish_at_startup)
    host.add_middleware(require, key="correct")
    with served(host, uvicorn.Server(uvicorn.Config(host, lifespan="on", ws="none", log_config=None))) as service:
        assert len(live.current) == 1
        assert service.pair_list("/api").status == 401


def test_the_collector_of_the_page_is_in_the_registry_of_the_host(tmp_path: Path):
    with served(program_of_the_page("measured.py", tmp_path)["app"]) as service:
        assert service.pair_list("/api").status == 200
        assert service.request("/api/metrics").status == 404
        samples = samples_of(service.request("/metrics/"))
    assert samples["market_index_requests_total", f"endpoint={PAIR_LIST}", "status=200"] == 1
    assert samples["market_index_pairs", "worker=0"] == 0
    assert any(name == "python_info" for name, *_ in samples), "the host has metrics of its own"


def test_the_recipe_with_health_works_each_time_its_lifespan_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    program = program_of_the_page("healthy.py", tmp_path)
    for rejected in (0, 1, 0):
        written(tmp_path / "books.ndjson", "nonsense\n" * rejected + SAMPLE.read_text())
        host = program["app"]
        server = uvicorn.Server(uvicorn.Config(host, lifespan="on", ws="none", log_config=None))
        with served(host, server) as service:
            health = service.request("/api/healthz")
            assert (health.status, health.json["pairs"]) == (200, 13)
            assert health.json["current_rejections"] == rejected, "the feed that is open must answer"


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
