"""The contract and the decisions on HTTP: the whole check of `market_index.contract`, and what it does not know."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from market_index import Freshness, LiveIndex, contract
from market_index.contract.machine import service_machine
from market_index_http import create_app
from market_index_http.operating import Health
from market_index_http.responses import Body
from market_index_http.routes import exact_route
from tests.apps import composed
from tests.asgi import request, request_cached, response_of_call, scope_of
from tests.feed_state import FeedState
from tests.market_index_http.books import MIDDLE, ORDER_BOOK, PAIR_LIST, fetch, stock, target
from tests.service import Client, HttpResponse, Service, sending, served
from tests.waiting import WITHOUT_SHRINKING

FEW = settings(settings(), max_examples=settings().max_examples // 4, stateful_step_count=10, phases=WITHOUT_SHRINKING)

OTHER_PATHS = [
    *("/", "/trading-view", "/%ff", "/" + "x" * 8_000, "/" + PAIR_LIST, "/trading-view/PAIR-LIST"),
    *(PAIR_LIST + "/", ORDER_BOOK + "/", PAIR_LIST + "\n", PAIR_LIST + "\0", "/trading-view/.." + PAIR_LIST),
    *("/healthz/", "/healthz\n"),
]


@pytest.mark.decision(7, 9, 10, 11, 12, 15, 16, 17, 18, 20, 21)
def test_responses_keep_every_rule():
    """They are those of what was published: the same from the app, its cached responses, and uvicorn with the app."""
    live = LiveIndex()
    app = create_app(live)
    with served(app, stock(app)) as service, closing(Client(service.port)) as client:
        send = sending(client)

        def get(asked: contract.Request) -> contract.Response:
            answer, headers = send(asked), dict(asked.headers)
            alone = request(app, asked.target, asked.method, headers)
            assert (alone.status, alone.body) == (answer.status, answer.body)
            assert alone.headers.items() <= answer.headers.items()
            assert request_cached(app, asked.target, asked.method, headers) in (None, alone)
            return answer

        class Checked(service_machine(live.show, get)):  # type: ignore[misc]  # a class that a function returns
            def teardown(self) -> None:
                live.publish(MIDDLE)
                assert contract.check(get).failed(strict=True) == []

        run_state_machine_as_test(Checked, settings=FEW)


@pytest.mark.decision(20)
def test_a_pair_that_is_tracked_the_other_way_round_is_named():
    app, base, other = create_app(LiveIndex([MIDDLE])), MIDDLE.pair.base, MIDDLE.pair.quote
    answer = request(app, f"{ORDER_BOOK}?base={other}&quote={base}")
    expected = f'{{"error":"Pair {other}/{base} not found; its reverse is tracked: {base}/{other}"}}'
    assert (answer.status, answer.body.decode()) == (404, expected)


@pytest.mark.decision(23)
def test_the_header_fields_have_the_freshness_that_is_known():
    live, time = LiveIndex([MIDDLE]), datetime(2026, 11, 22, 4, 17, 3, 999_000, UTC)
    app = create_app(live)
    for freshness, expected in (
        (Freshness(), {}),
        (Freshness("slot 7", time), {"as-of": "slot 7", "published-at": "2026-11-22T04:17:03.999Z"}),
        (Freshness("slot 8"), {"as-of": "slot 8"}),
    ):
        live.update([], freshness=freshness)
        for where in (PAIR_LIST, target(MIDDLE.pair), target(MIDDLE.pair).replace("abcd", "ABCD")):
            for condition in ({}, {"If-None-Match": "*"}):
                found = request(app, where, headers=condition).headers.items()
                prefix = "market-index-"
                assert {name.removeprefix(prefix): text for name, text in found if name.startswith(prefix)} == expected


def file_route(path: str, content: bytes) -> Route:
    body = Body.constant(content)

    async def respond(request: Request) -> Response:
        return body.response(request.scope)

    return exact_route(path, respond)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    files = [file_route("/file", b"content" * 200)]
    app = composed(LiveIndex([MIDDLE]), health=Health(FeedState()), others=files)
    with served(app) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with closing(Client(service.port)) as client:
        yield client


def error_message(answer: HttpResponse, status: int) -> str:
    """Return the message of an error response. Its status and body must be those of the contract."""
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers.keys().isdisjoint({"etag", "location"})
    assert list(answer.json) == ["error"]
    return str(answer.json["error"])


@pytest.mark.decision(16)
@pytest.mark.parametrize(
    ("query", "message"),
    [
        # Other spellings of an asset are not read, but the message has the identifier.
        *(
            (
                f"?base={spelling}&quote=ADA",
                f"Query parameter 'base': the identifier of this asset is {identifier}, got ",
            )
            for spelling, identifier in (
                ("lovelace", "ADA"),
                (f"{'ab' * 28}534e454b", f"{'ab' * 28}:534e454b"),
                (f"{'AB' * 28}.534e454b", f"{'ab' * 28}:534e454b"),
                ("ab" * 28, f"{'ab' * 28}:"),
            )
        ),
        ("", "Query parameter 'base' is missing"),
        ("?base=ADA", "Query parameter 'quote' is missing"),
        ("?base=&quote=ADA", "Query parameter 'base': an asset identifier must be ADA or policy:name in hex, got ''"),
        ("?base=ADA&base=ADA&quote=ADA", "Query parameter 'base' must be given once, got ['ADA', 'ADA']"),
        (
            "?base=ada&quote=ADA",
            "Query parameter 'base': an asset identifier must be ADA or policy:name in hex, got 'ada'",
        ),
        ("?base=ADA%0A&quote=ADA", r"in hex, got 'ADA\n'"),
        ("?base=%ff&quote=ADA", "in hex, got '\ufffd'"),
        ("?base=+ADA&quote=ADA", "in hex, got ' ADA'"),
        ("?base=ADA;quote=ADA", "in hex, got 'ADA;quote=ADA'"),
        (f"?base={'%00' * 2_600}&quote=ADA", "Query parameter 'base'"),
    ],
)
def test_an_invalid_parameter_is_400_and_named(service: Service, query: str, message: str):
    found = error_message(service.request(f"{ORDER_BOOK}{query}"), 400)
    assert message in found
    assert len(found) < 250


@pytest.mark.decision(25)
@pytest.mark.parametrize("where", [f"{PAIR_LIST}?base=&quote=", target(MIDDLE.pair)])
def test_an_excessive_target_is_400_and_the_connection_is_closed(service: Service, where: str):
    longest = f"{where}&x=".ljust(8192, "x")
    most = where + "&x" * 30
    assert service.request(longest).status == service.request(most).status == 200
    for excessive, message in (
        (longest + "x", "The request target must have at most 8192 bytes"),
        (most + "&", "The query must have at most 32 parameters"),
    ):
        with closing(Client(service.port)) as client:
            answer = client.request(excessive)
            assert error_message(answer, 400) == message
            # Any idle connection is closed later.
            assert answer.headers["connection"] == "close"
            assert client.socket.recv(1) == b""


@pytest.mark.parametrize(("version", "closed"), [("1.0", True), ("1.1", True), ("2", False), ("3", False)])
def test_no_field_of_the_connection_is_sent_by_later_versions(version: str, closed: bool):
    """HTTP/2 forbids it (RFC 9113, 8.2.2)."""
    scope = scope_of(f"{PAIR_LIST}?{'&' * 32}") | {"http_version": version}
    answer = response_of_call(create_app(LiveIndex()), scope)
    assert (answer.status, "connection" in answer.headers) == (400, closed)


@pytest.mark.decision(18, 21)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_any_other_path_is_404_and_no_redirect(client: Client, method: str):
    for path in OTHER_PATHS:
        assert error_message(client.request(quote(path), method), 404) == "Not Found"


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        (None, False),
        ("GZip", True),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", True),
        ("gzip;q=0.000", False),
        ("gzip;q=0.001", True),
        ("gzip ; q=0.5", True),
        ("gzip;Q=0", False),
        ("gzip;q=0, *", False),
        (",, gzip ,", True),
        ("gzipped, not-gzip", False),
        ("\u00e9, gzip", True),
        ("br\r\nAccept-Encoding: gzip", True),
        ("gzip\r\nAccept-Encoding: br", True),
        ("br\r\nAccept-Encoding: gzip;q=0", False),
    ],
)
def test_gzip_is_used_if_the_client_lists_it(client: Client, accepted: str | None, compressed: bool):
    answer = fetch(client, target(MIDDLE.pair), accept_encoding=accepted)
    assert (answer.headers.get("content-encoding") == "gzip") is compressed
    plain = fetch(client, target(MIDDLE.pair))
    assert (gzip.decompress(answer.body) if compressed else answer.body) == plain.body
    encoding = {"content-encoding", "content-length", "date"}
    assert answer.headers.keys() - encoding == plain.headers.keys() - encoding


def test_a_body_is_compressed_from_512_bytes():
    app = create_app(LiveIndex(), routes=[file_route(f"/{size}", b"x" * size) for size in (511, 512)])
    for size, coding in ((511, None), (512, "gzip")):
        assert request(app, f"/{size}", headers={"Accept-Encoding": "gzip"}).headers.get("content-encoding") == coding


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("W/{tag}", True),
        ("{tag}", True),
        ('"other",{tag},"more"', True),
        (" * ", True),
        ('"other"\r\nIf-None-Match: {tag}', True),
        ('{tag}\r\nIf-None-Match: "other"', True),
        ('"a{tag}', False),
        ('"a,b", "c"', False),
        ('"{bare}', False),
        ("{bare}", False),
        ('"x{bare}"', False),
        ("", False),
        ('"*"', False),
        ('"\u00e9", {tag}', True),
        ('*, "other"', False),
    ],
)
def test_tags_are_compared_weakly(client: Client, condition: str, matches: bool):
    """RFC 9110, 13.1.2."""
    etags = set()
    for where in (PAIR_LIST, target(MIDDLE.pair), target(MIDDLE.pair).replace("abcd", "ABCD"), "/file"):
        etag = fetch(client, where).headers["etag"]
        field = condition.replace("{tag}", etag.removeprefix("W/")).replace("{bare}", etag.strip('W/"'))
        answer = fetch(client, where, if_none_match=field, accept_encoding="gzip")
        assert (answer.status, answer.headers["etag"]) == (304 if matches else 200, etag)
        assert answer.headers["vary"] == "Accept-Encoding"
        assert matches == answer.headers.keys().isdisjoint({"content-length", "content-type", "content-encoding"})
        etags.add(etag)
    assert len(etags) == 4, "another spelling has another tag"
    for where, status in {f"{ORDER_BOOK}?base=ADA&quote=ADA": 404, ORDER_BOOK: 400, "/nowhere": 404}.items():
        assert fetch(client, where, if_none_match="*").status == status, "errors are not conditional"
