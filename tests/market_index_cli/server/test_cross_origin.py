"""Web pages of other origins: let in where they are named, and told apart by every cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index_cli.server.cross_origin import CrossOrigin
from market_index_http import create_app
from tests.command import SAMPLE, invoke, running
from tests.service import Answer, Client, Service, served

PAGE = "https://page.example"
OTHER = "http://127.0.0.1:3000"
PAIR_LIST = "/trading-view/pair-list"
LIVE = LiveIndex([OrderBook(Pair(ADA, AssetId(bytes(28), b"SNEK")))])


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served(CrossOrigin(create_app(LIVE), [PAGE, OTHER])) as service:
        yield service


def asked(
    service: Service, origin: str | None, method: str = "GET", where: str = PAIR_LIST, headers: str = ""
) -> Answer:
    client = Client(service.port)
    try:
        return client.ask(where, method, (f"Origin: {origin}\r\n" if origin else "") + headers)
    finally:
        client.close()


def granted(answer: Answer) -> str | None:
    return answer.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("origin", [PAGE, OTHER])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_page_that_is_named_reads_the_answer_and_its_etag(service: Service, origin: str, method: str):
    for _ in range(3):  # the first answer is made on the long way, the others on the short one
        answer = asked(service, origin, method)
        assert (answer.status, granted(answer)) == (200, origin)
        exposed = "ETag, Market-Index-As-Of, Market-Index-Published-At"
        assert answer.headers["access-control-expose-headers"] == exposed
        assert answer.headers["vary"] == "Accept-Encoding, Origin"


@pytest.mark.parametrize("origin", [None, "https://other.example", f"{PAGE}:444", "null", f"{PAGE}.evil.example"])
def test_any_other_page_is_not_let_in_and_caches_can_tell(service: Service, origin: str | None):
    for _ in range(3):
        asked(service, PAGE)
        answer = asked(service, origin)
        assert (answer.status, granted(answer)) == (200, None)
        assert answer.headers["vary"] == "Accept-Encoding, Origin"


def test_errors_and_what_still_holds_can_be_read_too(service: Service):
    etag = asked(service, PAGE).headers["etag"]
    kept = asked(service, PAGE, headers=f"If-None-Match: {etag}\r\n")
    assert (kept.status, granted(kept)) == (304, PAGE)
    for where, status in (("/trading-view/order-book?base=ADA", 400), ("/nothing", 404)):
        answer = asked(service, PAGE, where=where)
        assert (answer.status, granted(answer)) == (status, PAGE)
        assert list(answer.json) == ["error"]


PREFLIGHT = "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: if-none-match\r\n"


def test_a_preflight_is_granted_to_a_page_that_is_named(service: Service):
    answer = asked(service, PAGE, "OPTIONS", headers=PREFLIGHT)
    assert (answer.status, answer.body, granted(answer)) == (204, b"", PAGE)
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
def test_any_other_preflight_is_refused_with_the_error_body(service: Service, origin: str, headers: str, reason: str):
    answer = asked(service, origin, "OPTIONS", headers=headers)
    assert (answer.status, answer.json) == (400, {"error": reason})
    assert answer.headers["content-type"] == "application/json"


def test_options_that_is_no_preflight_is_a_method_as_any_other(service: Service):
    answer = asked(service, PAGE, "OPTIONS")
    assert (answer.status, list(answer.json)) == (405, ["error"])


def test_any_page_may_be_let_in():
    with served(CrossOrigin(create_app(LIVE), ["*"])) as service:
        for origin in (PAGE, "null"):
            assert granted(asked(service, origin)) == "*"
            assert granted(asked(service, origin, "OPTIONS", headers=PREFLIGHT)) == "*"


@pytest.mark.thorough
def test_no_page_reads_answers_by_default(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0) as command:
        answer = asked(command.service, PAGE)
        assert granted(answer) is None
        assert answer.headers["vary"] == "Accept-Encoding"
        assert asked(command.service, PAGE, "OPTIONS", headers=PREFLIGHT).status == 405


def test_the_option_can_be_given_more_than_once(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--cors-origin", PAGE, "--cors-origin", OTHER) as command:
        for origin in (PAGE, OTHER):
            for where in (PAIR_LIST, "/healthz", "/openapi.json"):
                assert granted(asked(command.service, origin, where=where)) == origin
        assert granted(asked(command.service, "https://other.example")) is None


@pytest.mark.thorough
def test_origins_can_be_given_by_a_variable(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, MARKET_INDEX_CORS_ORIGIN=f"{PAGE} {OTHER}") as command:
        assert granted(asked(command.service, OTHER)) == OTHER
        assert command.end() == 0


def test_an_invalid_origin_is_wrong_usage():
    done = invoke("serve", SAMPLE, "--cors-origin", f"{PAGE}/")
    assert done.returncode == 2
    assert "'https://page.example/' is not an origin: say https://page.example" in done.stderr
