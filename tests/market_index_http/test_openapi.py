"""The server and its OpenAPI description agree: routes, statuses, headers, bodies, events and schemas."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import openapi
from schemathesis.checks import not_a_server_error
from starlette.applications import Starlette
from starlette.routing import Route

from market_index import AssetId, Freshness, LiveIndex, MarketIndex, OrderBook, format_price, wire
from market_index.contract import Request, Response, check
from market_index.display import Token, Tokens
from market_index.strategies import (
    asset_ids,
    market_indexes,
    order_books,
    prices,
)
from market_index_cli.page.routes import summary_routes
from market_index_feeds import open_feed
from market_index_http import create_app
from market_index_http.operating import Health
from tests.apps import composed
from tests.command import SAMPLE
from tests.feed_state import FeedState
from tests.market_index.invalid_texts import invalid_asset_id_texts, invalid_price_texts
from tests.market_index_http.books import MIDDLE, ORDER_BOOK, PAIR_LIST
from tests.openapi import JSON, as_json, contract, validator
from tests.page import SNEK
from tests.service import Client, Service, served

CONTRACT = contract()
DESCRIBED = openapi.from_dict(CONTRACT)


@pytest.fixture(scope="module")
def feed() -> FeedState:
    return FeedState()


class WithShortStreams:
    """Disconnects each client of the stream at once: a test of whole responses cannot wait for its end."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def disconnected() -> Any:
            return {"type": "http.disconnect"}

        await self.app(scope, disconnected if scope["path"] == "/stream" else receive, send)


@pytest.fixture(scope="module")
def service(feed: FeedState) -> Iterator[Service]:
    live = LiveIndex(open_feed(SAMPLE).read().values())
    live.update([], freshness=Freshness("slot 145000000"))
    others = summary_routes(live, Tokens([Token(SNEK, "SNEK", decimals=0)]))
    health = Health(feed, max_stale=60)
    app = composed(live, stream=True, health=health, metrics=True, openapi=True, others=others)
    app.adapter.add_middleware(WithShortStreams)
    with served(app) as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", trust_env=False) as client:
        yield client


def test_the_server_serves_the_description_of_the_docs(service: Service):
    assert JSON.read_text() == as_json(), "to update it: make openapi"
    answer = service.request("/openapi.json")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.json == CONTRACT


def test_only_what_the_contract_requires_is_required():
    """The description is also that of other services, which need no cache."""
    for name in ("ETag", "CacheControl", "Vary", "AsOf", "PublishedAt"):
        assert not CONTRACT["components"]["headers"][name]["required"]


def test_it_describes_every_route_of_the_app():
    def paths(app: Starlette) -> set[str]:
        return {route.path for route in app.routes if isinstance(route, Route)}

    assert {path for path in CONTRACT["paths"] if path.startswith("/trading-view/")} == paths(create_app(LiveIndex()))
    others = summary_routes(LiveIndex(), Tokens())
    whole = composed(LiveIndex(), stream=True, health=Health(), metrics=True, openapi=True, others=others)
    assert CONTRACT["paths"].keys() == paths(whole.adapter) - {"/openapi.json"}


def assert_described(path: str, answer: httpx.Response) -> None:
    """Assert that the status, type, headers and body of a response match the description."""
    DESCRIBED[path]["GET"].Case().validate_response(answer, excluded_checks=[not_a_server_error])
    response = CONTRACT["paths"][path]["get"]["responses"][str(answer.status_code)]
    if "$ref" in response:
        response = CONTRACT["components"]["responses"][response["$ref"].rpartition("/")[2]]
    # Schemathesis ignores the parameters of a content type.
    assert set(response.get("content", {})) == {answer.headers.get("content-type")} - {None}


def test_each_response_of_a_check_is_as_described(client: httpx.Client):
    """All statuses of the two endpoints: 200, 304, 400, 404 and 405."""
    statuses = set()

    def send(request: Request) -> Response:
        answer = client.request(request.method, request.target, headers=dict(request.headers))
        statuses.add(answer.status_code)
        path = request.target.partition("?")[0]
        # The description says in words that any endpoint may reject an excessive target.
        is_excessive = path == PAIR_LIST and answer.status_code == 400
        if path in {PAIR_LIST, ORDER_BOOK} and request.method != "HEAD" and not is_excessive:
            assert_described(path, answer)
        return Response(answer.status_code, answer.headers, answer.content)

    assert check(send).failed(strict=True) == []
    assert statuses == {200, 304, 400, 404, 405}


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/stream", {"levels": "changed"}, 200),
        ("/stream", {"pairs": "ADA"}, 400),
        ("/healthz", {}, 200),
        ("/livez", {}, 200),
        ("/readyz", {}, 200),
        ("/metrics", {}, 200),
    ],
)
def test_responses_are_as_described(client: httpx.Client, path: str, query: dict[str, str], status: int):
    for method, expected in (("GET", status), ("HEAD", status), ("POST", 405)):
        answer = client.request(method, path, params=query)
        assert answer.status_code == expected
        if method == "HEAD":
            assert answer.content == b""
        else:
            assert_described(path, answer)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_stale_feed_is_as_described(client: httpx.Client, feed: FeedState, path: str):
    feed.age = 61
    stale = client.get(path)
    feed.age = 0
    assert stale.status_code == 503
    assert_described(path, stale)


def test_a_stream_for_http_1_0_is_as_described(service: Service):
    with closing(Client(service.port)) as client:
        client.socket.sendall(b"GET /stream HTTP/1.0\r\nHost: test\r\n\r\n")
        response = HTTPResponse(client.socket)
        response.begin()
        assert response.status == 426
        content, fields = response.read(), response.getheaders()
    request = httpx.Request("GET", f"http://127.0.0.1:{service.port}/stream")
    described = httpx.Response(426, headers=fields, content=content, request=request)
    described.elapsed = timedelta()
    assert_described("/stream", described)


@pytest.mark.decision(36)
def test_every_amount_has_the_widest_format_that_generators_know():
    found = [one for one in amounts(CONTRACT) if "type" in one]
    assert len(found) > 2
    for amount in found:
        assert (amount["type"], amount["format"], amount["maximum"]) == ("integer", "int64", 2**64 - 1)
        above = 2**63
        assert jsonschema_rs.validator_for(amount, validate_formats=True).is_valid(above)


def amounts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the schema of each amount of the description."""
    if isinstance(value, list | dict):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if name == "accumulated_liquidity" and isinstance(inner, dict):
                yield inner
            yield from amounts(inner)


def test_a_stream_above_the_limit_is_as_described():
    with served(composed(LiveIndex([MIDDLE]), stream=1)) as service, closing(Client(service.port)) as client:
        client.socket.sendall(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
        assert client.socket.recv(12) == b"HTTP/1.1 200"
        too_many = httpx.get(f"http://127.0.0.1:{service.port}/stream", trust_env=False)
        assert (too_many.status_code, too_many.headers["Retry-After"]) == (503, "5")
        assert_described("/stream", too_many)


@given(order_books(), market_indexes())
def test_every_book_and_pair_list_matches_its_schema(book: OrderBook, index: MarketIndex):
    validator("OrderBook").validate(json.loads(wire.order_book_to_json(book)))
    validator("PairList").validate(json.loads(wire.pair_list_to_json(index.pair_list())))


@given(asset_ids(), st.booleans(), invalid_asset_id_texts())
def test_the_schema_accepts_the_identifiers_that_the_server_reads(asset: AssetId, upper: bool, invalid: str):
    assert validator("AssetId").is_valid(str(asset))
    assert validator("AskedAssetId").is_valid(str(asset).upper() if upper else str(asset))
    for name in ("AssetId", "AskedAssetId"):
        assert not validator(name).is_valid(invalid)


@given(prices(), invalid_price_texts())
def test_the_schema_accepts_the_prices_that_the_server_sends(price: Decimal, invalid: str):
    assert validator("Price").is_valid(format_price(price))
    # A pattern cannot express that a coefficient is below 2^96.
    assert not validator("Price").is_valid(invalid) or len(invalid.replace(".", "")) >= 29


def test_the_schema_rejects_amounts_out_of_range():
    level = validator("PriceLevel")
    assert level.is_valid({"price": "1", "accumulated_liquidity": 2**64 - 1})
    for liquidity in (0, -1, 2**64, 1.5, "1", None, True):
        assert not level.is_valid({"price": "1", "accumulated_liquidity": liquidity})


def examples(value: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield each example of the description with its schema."""
    if isinstance(value, dict):
        if "schema" in value:
            for example in value.get("examples", {}).values():
                yield value["schema"], example["value"]
        for inner in value.values():
            yield from examples(inner)


def test_the_examples_are_as_described():
    found = list(examples(CONTRACT))
    assert len(found) > 10
    for schema, example in found:
        jsonschema_rs.validator_for({**schema, "components": CONTRACT["components"]}).validate(example)


@pytest.mark.thorough
def test_schemathesis_finds_no_issue(service: Service, tmp_path: Path):
    # All checks, with valid and invalid requests, alone and along the links.
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            "run",
            f"http://127.0.0.1:{service.port}/openapi.json",
            "--phases=examples,coverage,fuzzing,stateful",
            "--mode=all",
            "--checks=all",
            "--max-examples=40",
            "--continue-on-failure",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"Operations:       {len(CONTRACT['paths'])} selected" in done.stdout
    assert "API Links:    1 covered / 1 selected / 1 total" in done.stdout
    assert "No issues found" in done.stdout
