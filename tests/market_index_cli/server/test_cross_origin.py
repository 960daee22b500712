"""CORS: only allowed origins may read responses, and caches distinguish origins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index_cli.server.cross_origin import CrossOrigin
from market_index_http import create_app
from tests.command import SAMPLE, invoke, running
from tests.service import Client, HttpResponse, Service, served

PAGE = "https://page.example"
OTHER = "http://127.0.0.1:3000"
PAIR_LIST = "/trading-view/pair-list"
LIVE = LiveIndex([OrderBook(Pair(ADA, AssetId(bytes(28), b"SNEK")))])


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served(CrossOrigin(create_app(LIVE), [PAGE, OTHER])) as service:
        yield service


def fetch(
    service: Service, origin: str | None, method: str = "GET", where: str = PAIR_LIST, headers: str = ""
) -> HttpResponse:
    client = Client(service.port)
    try:
        return client.request(where, method, (f"Origin: {origin}\r\n" if origin else "") + headers)
    finally:
        client.close()


def allowed_origin(answer: HttpResponse) -> str | None:
    return answer.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("origin", [PAGE, OTHER])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_allowed_origin_reads_the_response_and_its_etag(service: Service, origin: str, method: str):
    for _ in range(3):  # the first response is routed, the others come from the fast path
        answer = fetch(service, origin, method)
        assert (answer.status, allowed_origin(answer)) == (200, origin)
        exposed = "ETag, Market-Index-As-Of, Market-Index-Published-At, Preference-Applied"
        assert answer.headers["access-control-expose-headers"] == exposed
        assert answer.headers["vary"] == "Accept-Encoding, Origin"


@pytest.mark.parametrize("origin", [None, "https://other.example", f"{PAGE}:444", "null", f"{PAGE}.evil.example"])
def test_any_other_origin_is_not_allowed_and_vary_names_the_origin(service: Service, origin: str | None):
    for _ in range(3):
        fetch(service, PAGE)
        answer = fetch(service, origin)
        assert (answer.status, allowed_origin(answer)) == (200, None)
        assert answer.headers["vary"] == "Accept-Encoding, Origin"


def test_an_allowed_origin_reads_304_and_errors(service: Service):
    etag = fetch(service, PAGE).headers["etag"]
    not_modified = fetch(service, PAGE, headers=f"If-None-Match: {etag}\r\n")
    assert (not_modified.status, allowed_origin(not_modified)) == (304, PAGE)
    for where, status in (("/trading-view/order-book?base=ADA", 400), ("/nothing", 404)):
        answer = fetch(service, PAGE, where=where)
        assert (answer.status, allowed_origin(answer)) == (status, PAGE)
        assert list(answer.json) == ["error"]


PREFLIGHT = "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: if-none-match\r\n"


def test_a_preflight_of_an_allowed_origin_is_accepted(service: Service):
    answer = fetch(service, PAGE, "OPTIONS", headers=PREFLIGHT)
    assert (answer.status, answer.body, allowed_origin(answer)) == (204, b"", PAGE)
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD"
    assert "If-None-Match" in answer.headers["access-control-allow-headers"]
    assert "content-length" not in answer.headers
    assert "Origin" in answer.headers["vary"]


@pytest.mark.parametrize(
    ("origin", "headers", "reason"),
    [
        ("https://other.example", PREFLIGHT, "Disallowed CORS origin"),
        (PAGE, PREFLIGHT.replace("GET", "POST"), "Disallowed CORS method"),
        (PAGE, PREFLIGHT.replace("if-none-match", "x-secret"), "Disallowed CORS headers"),
    ],
)
def test_any_other_preflight_is_rejected_with_the_error_body(service: Service, origin: str, headers: str, reason: str):
    answer = fetch(service, origin, "OPTIONS", headers=headers)
    assert (answer.status, answer.json) == (400, {"error": reason})
    assert answer.headers["content-type"] == "application/json"


def test_options_without_a_preflight_is_405(service: Service):
    answer = fetch(service, PAGE, "OPTIONS")
    assert (answer.status, list(answer.json)) == (405, ["error"])


def test_any_origin_can_be_allowed():
    with served(CrossOrigin(create_app(LIVE), ["*"])) as service:
        for origin in (PAGE, "null"):
            assert allowed_origin(fetch(service, origin)) == "*"
            assert allowed_origin(fetch(service, origin, "OPTIONS", headers=PREFLIGHT)) == "*"


@pytest.mark.thorough
def test_no_origin_is_allowed_by_default(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0) as command:
        answer = fetch(command.service, PAGE)
        assert allowed_origin(answer) is None
        assert answer.headers["vary"] == "Accept-Encoding"
        assert fetch(command.service, PAGE, "OPTIONS", headers=PREFLIGHT).status == 405


def test_the_option_can_be_given_more_than_once(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--cors-origin", PAGE, "--cors-origin", OTHER) as command:
        for origin in (PAGE, OTHER):
            for where in (PAIR_LIST, "/healthz", "/openapi.json"):
                assert allowed_origin(fetch(command.service, origin, where=where)) == origin
        assert allowed_origin(fetch(command.service, "https://other.example")) is None


@pytest.mark.thorough
def test_origins_can_be_given_by_a_variable(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, MARKET_INDEX_CORS_ORIGIN=f"{PAGE} {OTHER}") as command:
        assert allowed_origin(fetch(command.service, OTHER)) == OTHER
        assert command.end() == 0


def test_an_invalid_origin_is_a_usage_error():
    done = invoke("serve", SAMPLE, "--cors-origin", f"{PAGE}/")
    assert done.returncode == 2
    assert (
        "an origin must be as browsers send it, such as https://example.com, got 'https://page.example/'" in done.stderr
    )
