"""The rules of the contract and the decisions on HTTP, tested through a real uvicorn on a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair, wire
from market_index.strategies import invalid_asset_id_texts, market_indexes
from market_index_http import create_app
from tests.service import Client, HttpResponse, Service, served
from tests.waiting import eventually

POLICY = "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"
SNEK = f"{POLICY}:534e454b"
NAMELESS = f"{POLICY}:"
TRADED = OrderBook.from_levels(
    Pair(AssetId.parse(SNEK), ADA),
    bids=[("0.0000110", 5), ("0.00002", 2**64 - 1), ("0.000011", 6)],
    asks=[("100", 7), ("30", 2**53 + 1), ("1e1", 0)],
    spot="0.50",
)
UNTRADED = OrderBook(Pair(ADA, AssetId.parse(NAMELESS)))
CROSSED = OrderBook.from_levels(
    Pair(AssetId.parse(SNEK), AssetId.parse(NAMELESS)), bids=[("3", 1)], asks=[("2", 1)], spot="2.5"
)


@pytest.fixture(scope="module")
def live() -> LiveIndex:
    return LiveIndex()


@pytest.fixture(scope="module")
def running(live: LiveIndex) -> Iterator[Service]:
    with served(create_app(live)) as service:
        yield service


@pytest.fixture
def service(running: Service, live: LiveIndex) -> Service:
    live.update([TRADED, UNTRADED, CROSSED], list(live.current))
    return running


def error_message(answer: HttpResponse, status: int) -> str:
    """Return the message of an error response. Its status and body must be those of the contract."""
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json) == ["error"]
    assert isinstance(answer.json["error"], str)
    return str(answer.json["error"])


class TestPairList:
    """Section 4.1 of the contract."""

    @pytest.mark.decision(9, 12)
    def test_every_tracked_pair_appears_once_in_ledger_order(self, service: Service):
        answer = service.pair_list()
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json == {
            "pairs": [
                {"base": "ADA", "quote": NAMELESS, "last_spot": None},
                {"base": SNEK, "quote": "ADA", "last_spot": "0.5"},
                {"base": SNEK, "quote": NAMELESS, "last_spot": "2.5"},
            ]
        }

    def test_an_empty_index_has_an_empty_list(self, service: Service, live: LiveIndex):
        live.retract(*live.current)
        assert service.pair_list().body == b'{"pairs":[]}'

    @pytest.mark.decision(17, 21)
    def test_query_parameters_are_ignored(self, service: Service):
        assert service.request("/trading-view/pair-list?base=x&page=2").json == service.pair_list().json


class TestOrderBook:
    """Section 4.2 of the contract."""

    def test_a_book_has_bids_with_falling_and_asks_with_rising_prices(self, service: Service):
        answer = service.order_book(SNEK, "ADA")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json == {
            "base": SNEK,
            "quote": "ADA",
            "spot": "0.5",
            "bids": [
                {"price": "0.00002", "accumulated_liquidity": 18446744073709551615},
                {"price": "0.000011", "accumulated_liquidity": 11},
            ],
            "asks": [
                {"price": "30", "accumulated_liquidity": 9007199254740993},
                {"price": "100", "accumulated_liquidity": 7},
            ],
        }

    def test_spot_is_null_if_there_was_no_trade(self, service: Service):
        expected: dict[str, Any] = {"base": "ADA", "quote": NAMELESS, "spot": None, "bids": [], "asks": []}
        assert service.order_book("ADA", NAMELESS).json == expected

    @pytest.mark.decision(15)
    def test_a_crossed_book_is_served_unchanged(self, service: Service):
        book = service.order_book(SNEK, NAMELESS).json
        assert Decimal(book["bids"][0]["price"]) > Decimal(book["asks"][0]["price"])

    @pytest.mark.decision(7)
    @pytest.mark.parametrize("text", [SNEK, SNEK.upper(), POLICY + ":534E454b", POLICY.upper() + ":534e454b"])
    def test_base_and_quote_are_echoed_as_they_were_requested(self, service: Service, text: str):
        nameless = text.partition(":")[0] + ":"
        assert service.order_book(text, "ADA").json["base"] == text
        assert service.order_book("ADA", nameless).json["quote"] == nameless

    @pytest.mark.parametrize("colon", [":", "%3A", "%3a"])
    def test_the_colon_may_be_raw_or_percent_encoded(self, service: Service, colon: str):
        target = f"/trading-view/order-book?quote=ADA&base={POLICY}{colon}534e454b"
        assert service.request(target).json["base"] == SNEK

    @pytest.mark.decision(17)
    def test_unknown_parameters_are_ignored(self, service: Service):
        answer = service.request(f"/trading-view/order-book?depth=1&base={SNEK}&BASE=x&quote=ADA&%00=%ff")
        assert answer.status == 200
        assert len(answer.json["bids"]) == 2

    @pytest.mark.decision(10, 11, 20)
    @pytest.mark.parametrize(
        ("base", "quote"),
        [("ADA", SNEK), (NAMELESS, "ADA"), ("ADA", "ADA"), (SNEK, SNEK), (SNEK.upper(), f"{POLICY}:00")],
    )
    def test_an_untracked_pair_is_404_and_named_as_it_was_requested(self, service: Service, base: str, quote: str):
        assert error_message(service.order_book(base, quote), 404) == f"Pair {base}/{quote} not found"

    def test_a_published_change_is_in_the_next_response(self, service: Service, live: LiveIndex):
        live.publish(TRADED.apply(spot="7", bids=[("1", 1)]))
        assert service.order_book(SNEK, "ADA").json["bids"][0] == {"price": "1", "accumulated_liquidity": 1}
        assert service.pair_list().json["pairs"][1]["last_spot"] == "7"
        live.retract(TRADED.pair)
        assert service.order_book(SNEK, "ADA").status == 404


class TestErrors:
    """Decisions 16, 18 and 19."""

    @pytest.mark.decision(16)
    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("", "Query parameter 'base' is missing"),
            ("?", "Query parameter 'base' is missing"),
            ("?base=ADA", "Query parameter 'quote' is missing"),
            ("?quote=ADA", "Query parameter 'base' is missing"),
            ("?Base=ADA&quote=ADA", "Query parameter 'base' is missing"),
            ("?base=&quote=ADA", "Query parameter 'base' must not be empty, got ''"),
            ("?base&quote=ADA", "Query parameter 'base' must not be empty, got ''"),
            ("?base=ADA&quote=", "Query parameter 'quote' must not be empty, got ''"),
            ("?base=ADA&base=ADA&quote=ADA", "Query parameter 'base' must be given once, got ['ADA', 'ADA']"),
            ("?base=ADA&quote=ADA&quote=", "Query parameter 'quote' must be given once, got ['ADA', '']"),
            (
                "?base=ada&quote=ADA",
                "Query parameter 'base': an asset identifier must be ADA or policy:name in hex, got 'ada'",
            ),
            ("?base=lovelace&quote=ADA", "in hex, got 'lovelace'"),
            ("?base=.&quote=ADA", "in hex, got '.'"),
            (f"?base={POLICY}.534e454b&quote=ADA", "must be ADA or policy:name"),
            (f"?base={POLICY}534e454b&quote=ADA", "must be ADA or policy:name"),
            (f"?base=ADA&quote={POLICY}:534e454", "Query parameter 'quote'"),
            (f"?base=ADA&quote={POLICY}:5", "even number of digits, got"),
            (f"?base=ADA&quote={POLICY[1:]}:", "must have 56 digits, got 55"),
            (f"?base=ADA&quote={POLICY}:{'00' * 33}", "at most 64 digits, got 66"),
            (f"?base=ADA&quote={POLICY}:zz", "must be hexadecimal"),
            (f"?base=ADA&quote={POLICY}%253A", "must be ADA or policy:name"),
            ("?base=ADA%0A&quote=ADA", r"in hex, got 'ADA\n'"),
            ("?base=ADA%00&quote=ADA", r"in hex, got 'ADA\x00'"),
            ("?base=%00&quote=ADA", r"in hex, got '\x00'"),
            ("?base=%ff&quote=ADA", "in hex, got '\ufffd'"),
            ("?base=%zz&quote=ADA", "in hex, got '%zz'"),
            ("?base=%&quote=ADA", "in hex, got '%'"),
            ("?base=+ADA&quote=ADA", "in hex, got ' ADA'"),
            ("?base=ADA%20&quote=ADA", "in hex, got 'ADA '"),
            ("?base=%ED%A0%80&quote=ADA", "an asset identifier must be ADA"),
            ("?base=%EF%BC%A1DA&quote=ADA", "in hex, got '\uff21DA'"),
            (f"?base=ADA&quote={POLICY}:%D9%A1%D9%A2", "must be hexadecimal"),
            (f"?base=ADA&quote={POLICY}:+0+", "even number of digits, got"),
            (f"?base=ADA&quote={POLICY}:+00+", "must be hexadecimal"),
            ("?base=ADA;quote=ADA", "in hex, got 'ADA;quote=ADA'"),
            ("?base=%22%3Cscript%3E&quote=ADA", "in hex, got '\"<script>'"),
        ],
    )
    def test_an_invalid_parameter_is_400_and_named(self, service: Service, query: str, message: str):
        assert message in error_message(service.request(f"/trading-view/order-book{query}"), 400)

    @pytest.mark.decision(8, 16)
    @given(text=invalid_asset_id_texts(), name=st.sampled_from(["base", "quote"]))
    def test_an_invalid_asset_identifier_is_400_and_shown(self, running: Service, text: str, name: str):
        values = {"base": "ADA", "quote": "ADA"} | {name: text}
        message = error_message(running.request(f"/trading-view/order-book?{urlencode(values)}"), 400)
        problem = " must " if text else "must not be empty, got ''"
        assert message.startswith(f"Query parameter '{name}'")
        assert problem in message

    @pytest.mark.decision(16)
    @pytest.mark.parametrize("size", [1_000, 8_000, 60_000])
    @pytest.mark.parametrize("filler", ["a", "%00", "%ff", ":"])
    def test_a_huge_value_is_400_and_truncated(self, service: Service, size: int, filler: str):
        answer = service.request(f"/trading-view/order-book?base={filler * (size // len(filler))}&quote=ADA")
        message = error_message(answer, 400)
        assert len(message) < 250
        # Decision 25: the server rejects a target above 8 KiB.
        assert message.startswith("Query parameter 'base'" if size <= 8_000 else "The request target must have")

    @pytest.mark.parametrize(
        "request_line",
        [
            "nonsense",
            "GET",
            "get /trading-view/pair-list HTTP/1.1",
            "GET /trading-view/ pair-list HTTP/1.1",
            "\x16\x03\x01",
        ],
    )
    def test_a_request_that_is_not_http_is_400_with_the_error_body(self, service: Service, request_line: str):
        client = Client(service.port)
        error_message(client.send(f"{request_line}\r\nHost: test\r\n\r\n".encode()), 400)
        client.close()

    @pytest.mark.decision(18, 21)
    @pytest.mark.parametrize(
        "path",
        [
            "/",
            "/trading-view",
            "/trading-view/",
            "/trading-view/pair-list/",
            "/trading-view/order-book/",
            "/trading-view/order-book/?base=ADA&quote=ADA",
            "/trading-view/pair-list%0A",
            "/trading-view/order-book%0a?base=ADA&quote=ADA",
            "/trading-view/pair-list%00",
            "/trading-view/PAIR-LIST",
            "//trading-view/pair-list",
            "/trading-view//pair-list",
            "/trading-view/../trading-view/pair-list",
            "/trading-view%2Fpair-lists",
            "/favicon.ico",
            "/" + "x" * 8_000,
            "/%ff%fe",
        ],
    )
    @pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
    def test_any_other_path_is_404_and_no_redirect(self, service: Service, path: str, method: str):
        answer = service.request(path, method)
        assert "location" not in answer.headers
        if method == "HEAD":
            assert (answer.status, answer.body) == (404, b"")
        else:
            error_message(answer, 404)

    @pytest.mark.decision(18)
    @pytest.mark.parametrize("path", ["/trading-view/pair-list", "/trading-view/order-book?base=ADA&quote=ADA"])
    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
    def test_any_other_method_is_405_with_the_allowed_methods(self, service: Service, path: str, method: str):
        answer = service.request(path, method)
        error_message(answer, 405)
        assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}

    @pytest.mark.decision(19)
    def test_an_unexpected_failure_is_500_without_detail_and_logged(
        self, service: Service, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ):
        def fail(*_: object, **__: object) -> bytes:
            raise RuntimeError("a secret detail")

        live.publish(TRADED.apply(spot="9"))  # a new book, whose body is not cached
        monkeypatch.setattr("market_index_http.bodies.encoded_order_book", fail)
        assert error_message(service.order_book(SNEK, "ADA"), 500) == "Internal Server Error"
        # The server logs after its response.
        eventually(lambda: "RuntimeError: a secret detail" in caplog.text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(index=market_indexes())
def test_every_response_equals_the_domain(running: Service, live: LiveIndex, index: MarketIndex):
    live.update(index.values(), list(live.current))
    client = Client(running.port)
    try:
        assert wire.pair_list_from_json(client.request("/trading-view/pair-list").body) == index.pair_list()
        for pair, book in index.items():
            answer = client.request(f"/trading-view/order-book?base={pair.base}&quote={pair.quote}")
            assert wire.order_book_from_json(answer.body) == book
            assert (answer.json["base"], answer.json["quote"]) == (str(pair.base), str(pair.quote))
            if Pair(pair.quote, pair.base) not in index:
                assert client.request(f"/trading-view/order-book?base={pair.quote}&quote={pair.base}").status == 404
    finally:
        client.close()


def test_a_saved_response_is_a_line_of_a_feed(service: Service):
    answer = service.order_book(SNEK, "ADA")
    assert wire.order_book_from_json(answer.body) == TRADED
    assert b"\n" not in answer.body
    assert json.loads(answer.body)["base"] == SNEK
