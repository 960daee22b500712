"""The server and its OpenAPI description agree: routes, statuses, headers, bodies and schemas."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Route

from market_index import AssetId, Freshness, LiveIndex, MarketIndex, OrderBook, format_price, wire
from market_index.strategies import (
    asset_ids,
    invalid_asset_id_texts,
    invalid_price_texts,
    market_indexes,
    order_books,
    prices,
)
from market_index_feeds import open_store
from market_index_http import Health, create_app
from tests.command import SAMPLE, running
from tests.openapi import JSON, as_json, contract
from tests.service import Client, HttpResponse, Service, served

CONTRACT = contract()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("openapi")
    with open_store(folder / "market.db") as store:
        books = map(wire.order_book_from_json, SAMPLE.read_bytes().splitlines())
        store.update(books, freshness=Freshness("slot 145000000"))
    with running(folder, store.name, "--port", 0) as command:
        yield command.service


def validator(name: str) -> Any:
    return jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": CONTRACT["components"]},
        validate_formats=True,
    )


def resolved(value: Any) -> Any:
    while "$ref" in value:
        found: Any = CONTRACT
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def test_the_server_serves_the_description_of_the_docs(service: Service):
    assert JSON.read_text() == as_json(), "to update it: make openapi"
    answer = service.request("/openapi.json")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-cache"
    assert re.fullmatch('W/"[0-9a-f]{32}"', answer.headers["etag"])
    assert answer.json == CONTRACT


def test_it_describes_every_route_of_the_app():
    def paths(app: Starlette) -> set[str]:
        return {route.path for route in app.routes if isinstance(route, Route)}

    assert {path for path in CONTRACT["paths"] if path.startswith("/trading-view/")} == paths(create_app(LiveIndex()))
    whole = create_app(LiveIndex(), stream=True, health=Health(), metrics=True, openapi=True)
    assert CONTRACT["paths"].keys() == paths(whole) - {"/openapi.json"}


def assert_described(path: str, answer: HttpResponse) -> None:
    """Assert that the status, type, headers and body of a response match the description."""
    responses = CONTRACT["paths"][path]["get"]["responses"]
    assert str(answer.status) in responses
    response = resolved(responses[str(answer.status)])
    content = response.get("content", {})
    if content:
        assert set(content) == {answer.headers["content-type"]}
        if "application/json" in content:
            schema = {**content["application/json"]["schema"], "components": CONTRACT["components"]}
            jsonschema_rs.validator_for(schema).validate(answer.json)
    else:
        assert answer.body == b""
    for name, described_header in response.get("headers", {}).items():
        header = resolved(described_header)
        schema = header["schema"]
        value = answer.headers.get(name.lower())
        if value is None:
            assert not header["required"]
            continue
        assert value == schema["const"] if "const" in schema else re.fullmatch(schema["pattern"], value)


FIRST = json.loads(SAMPLE.read_text().splitlines()[0])
QUERY = f"base={FIRST['base']}&quote={FIRST['quote']}"


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/trading-view/pair-list", "", 200),
        ("/trading-view/order-book", QUERY, 200),
        ("/trading-view/order-book", QUERY.upper().replace("BASE", "base").replace("QUOTE", "quote"), 200),
        ("/trading-view/order-book", "base=ADA&quote=ADA", 404),
        ("/trading-view/order-book", "base=ADA", 400),
        ("/trading-view/order-book", "base=ADA&quote=lovelace", 400),
        ("/healthz", "", 200),
        ("/livez", "", 200),
        ("/readyz", "", 200),
        ("/metrics", "", 200),
    ],
)
def test_responses_are_as_described(service: Service, path: str, query: str, status: int):
    answer = service.request(f"{path}?{query}")
    assert answer.status == status
    assert_described(path, answer)
    head = service.request(f"{path}?{query}", "HEAD")
    assert (head.status, head.body) == (status, b"")


@pytest.mark.parametrize("path", CONTRACT["paths"])
def test_405_and_304_are_as_described(service: Service, path: str):
    other = service.request(path, "POST")
    assert other.status == 405
    assert_described(path, other)
    if path.startswith("/trading-view/"):
        client = Client(service.port)
        not_modified = client.request(f"{path}?{QUERY}", headers="If-None-Match: *\r\n")
        client.close()
        assert not_modified.status == 304
        assert_described(path, not_modified)


@pytest.mark.parametrize("path", ["/trading-view/pair-list", "/trading-view/order-book"])
def test_a_failure_is_as_described(path: str, monkeypatch: pytest.MonkeyPatch):
    def fail(_: LiveIndex) -> MarketIndex:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(LiveIndex, "current", property(fail))
    with served(create_app(LiveIndex())) as here:
        answer = here.request(f"{path}?{QUERY}")
    assert answer.status == 500
    assert_described(path, answer)


def test_a_stale_server_is_as_described(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--max-stale", 0) as command:
        for path in ("/healthz", "/readyz"):
            answer = command.service.request(path)
            assert answer.status == 503
            assert_described(path, answer)


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


@pytest.mark.parametrize("text", ["1.0", "01", ".5", "1e-8", "+1", "0.10", "0", "0.0", "1.", "1\n"])
def test_a_price_has_one_text(text: str):
    assert not validator("Price").is_valid(text)


@pytest.mark.parametrize("liquidity", [0, -1, 2**64, 1.5, "1", None, True])
def test_a_level_has_a_whole_liquidity(liquidity: object):
    assert not validator("PriceLevel").is_valid({"price": "1", "accumulated_liquidity": liquidity})
    assert validator("PriceLevel").is_valid({"price": "1", "accumulated_liquidity": 2**64 - 1})


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
            "--exclude-path=/stream",  # its response does not end
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
    assert "API Links:    1 covered / 1 selected / 1 total" in done.stdout
    assert "No issues found" in done.stdout
