"""The rules of the contract and the decisions on HTTP.

A state machine compares every response with an independent model, as a raw ASGI call and through a real uvicorn. The
tables below it name the single rules.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from market_index import Freshness, LiveIndex, OrderBook
from market_index.strategies import order_books, pairs
from market_index_http import create_app
from market_index_http.operating import Health
from market_index_http.responses import Body
from market_index_http.routes import exact_route
from tests.apps import composed
from tests.asgi import request, request_cached, response_of_call, scope_of
from tests.feed_state import FeedState
from tests.market_index.invalid_texts import invalid_asset_id_texts
from tests.market_index_http.books import MIDDLE, fetch, numbered_pair, stock, target
from tests.market_index_http.model import ORDER_BOOK, PAIR_LIST, Asked, accepts_gzip, expected
from tests.service import Client, HttpResponse, Service, served

METHODS = st.sampled_from(["GET", "HEAD"])
ACCEPTED = st.sampled_from(["", "identity", "gzip", "gzip, deflate, br, zstd", "br, gzip;q=0.5", "gzip;q=0", "deflate"])
TAG = re.compile(r'W/"[0-9a-f]{32}"').fullmatch


OTHER_PATHS = [
    *("/", "/trading-view", "/%ff", "/" + "x" * 8_000, "/" + PAIR_LIST, "/trading-view/PAIR-LIST"),
    *(PAIR_LIST + "/", ORDER_BOOK + "/", PAIR_LIST + "\n", PAIR_LIST + "\0", "/trading-view/.." + PAIR_LIST),
    *("/healthz/", "/healthz\n"),
]


def upper_name(identifier: str) -> str:
    policy, colon, name = identifier.partition(":")
    return policy + colon + name.upper()


class Contract(RuleBasedStateMachine):
    """Publishes, retracts and requests. Every response must be that of the model."""

    # A state machine takes no fixtures: `served_for_the_machine` sets these.
    live: LiveIndex
    app: Any
    port: int

    @initialize()
    def start(self) -> None:
        self.client = Client(self.port)
        self.freshness = Freshness()
        self.live.update([], list(self.live.current), freshness=self.freshness)
        self.books: dict[str, OrderBook] = {}
        self.content_of: dict[str, bytes] = {}
        self.tag_of: dict[bytes, str] = {}
        # Drawn books are small. This one is compressed, and its identifier has letters, so it has other spellings.
        self.show(MIDDLE)

    @rule(one=order_books(max_levels=4), is_known=st.booleans(), data=st.data())
    def publish(self, one: OrderBook, is_known: bool, data: st.DataObject) -> None:
        if self.books and is_known:
            pair = self.books[data.draw(st.sampled_from(sorted(self.books)))].pair
            one = OrderBook(pair, one.bids, one.asks, one.spot)
        self.show(one)

    @rule(data=st.data(), amount=st.integers(0, 3))
    def change_a_level(self, data: st.DataObject, amount: int) -> None:
        if self.books:
            self.show(self.books[data.draw(st.sampled_from(sorted(self.books)))].apply(bids=[("1", amount)]))

    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        if self.books:
            self.live.retract(self.books.pop(data.draw(st.sampled_from(sorted(self.books)))).pair)
            self.freshness = self.live.current.freshness

    @rule(as_of=st.sampled_from([None, "slot 7", "slot 8"]), milliseconds=st.none() | st.integers(0, 999))
    def publish_a_heartbeat(self, as_of: str | None, milliseconds: int | None) -> None:
        time = None if milliseconds is None else datetime(2026, 11, 22, 4, 17, 3, milliseconds * 1000, UTC)
        self.freshness = Freshness(as_of, time)
        self.live.update([], freshness=self.freshness)

    @rule(data=st.data(), spell=st.sampled_from([str, str, str.upper, upper_name]), accepted=ACCEPTED, method=METHODS)
    def request_a_book(self, data: st.DataObject, spell: Any, accepted: str, method: str) -> None:
        tracked = st.sampled_from([one.pair for one in self.books.values()] or [numbered_pair(1)])
        pair = data.draw(tracked | pairs())
        sides = [str(pair.base), str(pair.quote)]
        if data.draw(st.integers(0, 9)) == 0:
            sides.reverse()
        sides = list(map(spell, sides))
        parameters = [
            *zip(("base", "quote"), sides, strict=True),
            *data.draw(st.sampled_from([[], [], [("depth", "1")], [("BASE", "x"), ("\0", "\xff")]])),
        ]
        self.check(Asked(ORDER_BOOK, tuple(data.draw(st.permutations(parameters))), method, accepted))

    @rule(accepted=ACCEPTED, method=METHODS)
    def request_the_list(self, accepted: str, method: str) -> None:
        self.check(Asked(PAIR_LIST, method=method, accept_encoding=accepted))

    @rule(
        path=st.sampled_from([PAIR_LIST, ORDER_BOOK]),
        method=st.sampled_from(["GET", "HEAD", "POST", "DELETE"]),
        values=st.lists(st.tuples(st.sampled_from(["base", "quote", "x"]), st.just("ADA") | invalid_asset_id_texts())),
        filler=st.sampled_from([0, 0, 31, 32, 33]),
    )
    def request_anything(self, path: str, method: str, values: list[tuple[str, str]], filler: int) -> None:
        self.check(Asked(path, (*values, *[("x", "")] * filler), method))

    def show(self, one: OrderBook) -> None:
        self.live.publish(one)
        self.books[str(one.pair)] = one
        self.freshness = self.live.current.freshness

    def check(self, asked: Asked) -> None:
        """Compare the response, and then that to a request with its entity tag."""
        answer = self.answer(asked)
        wanted = expected(self.books, self.freshness, asked)
        assert answer.status == wanted.status
        if wanted.status != 200:
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers.keys().isdisjoint({"etag", "location"})
            if wanted.status == 405:
                assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}
            if asked.method != "HEAD":
                assert answer.json.keys() == {"error"}
                assert wanted.error in answer.json["error"]
            return
        assert answer.headers["content-type"] == "application/json"
        tag = answer.headers["etag"]
        freshness = {name for name in answer.headers if name.startswith("market-index")}
        assert answer.headers.items() >= wanted.headers.items()
        assert freshness <= wanted.headers.keys()
        plain = self.answer(Asked(asked.path, asked.parameters))
        assert plain.json == wanted.content
        assert b"\n" not in plain.body
        # Equal tags mean equal content, and equal content has one tag in all encodings.
        assert TAG(tag)
        assert self.content_of.setdefault(tag, plain.body) == plain.body
        assert self.tag_of.setdefault(plain.body, tag) == tag == plain.headers["etag"]
        is_compressed = accepts_gzip(asked.accept_encoding) and len(plain.body) >= 512
        assert (answer.headers.get("content-encoding") == "gzip") is is_compressed
        if asked.method == "HEAD":
            whole = self.answer(evolve(asked, method="GET"))
            assert answer.headers | {"date": ""} == whole.headers | {"date": ""}
        else:
            assert (gzip.decompress(answer.body) if is_compressed else answer.body) == plain.body
            assert int(answer.headers["content-length"]) == len(answer.body)
        for known, is_known in ((tag, True), (f'"x", {tag[2:]}', True), ("*", True), ('W/"x"', False)):
            again = self.answer(asked, known)
            assert (again.status == 304) is is_known
            assert again.headers["etag"] == tag
            if is_known:
                assert again.body == b""
                assert not {"content-length", "content-type", "content-encoding"} & again.headers.keys()
                assert again.headers.items() >= wanted.headers.items()

    def answer(self, asked: Asked, if_none_match: str | None = None) -> HttpResponse:
        """Return the response of uvicorn. The app alone, and its cached response, must be the same."""
        where = quote(asked.path) + ("?" if asked.parameters else "") + urlencode(asked.parameters)
        fields = {"accept-encoding": asked.accept_encoding or None, "if-none-match": if_none_match}
        answer = fetch(self.client, where, asked.method, **fields)
        headers = {name: value for name, value in fields.items() if value is not None}
        cached, alone = (
            request_cached(self.app, where, asked.method, headers),
            request(self.app, where, asked.method, headers),
        )
        assert (alone.status, alone.body) == (answer.status, answer.body)
        assert alone.headers.items() <= answer.headers.items()
        assert cached in (None, alone)
        if answer.headers.get("connection") == "close":
            self.client.close()
            self.client = Client(self.port)
        return answer

    def teardown(self) -> None:
        self.client.close()


@pytest.fixture(scope="module", autouse=True)
def served_for_the_machine() -> Iterator[None]:
    Contract.live = LiveIndex()
    Contract.app = create_app(Contract.live)
    with served(Contract.app, stock(Contract.app)) as service:
        Contract.port = service.port
        yield


TestContract = pytest.mark.decision(7, 9, 10, 11, 12, 15, 16, 17, 18, 20, 21)(Contract.TestCase)
TestContract.settings = settings(settings(), max_examples=settings().max_examples // 2, stateful_step_count=20)


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
        ("?base=&quote=ADA", "Query parameter 'base' must not be empty, got ''"),
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
        etags.add(etag)
    assert len(etags) == 4, "another spelling has another tag"
    for where, status in {f"{ORDER_BOOK}?base=ADA&quote=ADA": 404, ORDER_BOOK: 400, "/nowhere": 404}.items():
        assert fetch(client, where, if_none_match="*").status == status, "errors are not conditional"
