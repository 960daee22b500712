"""Accept-Encoding and If-None-Match, through a real uvicorn."""

from __future__ import annotations

import gzip

import pytest

from market_index import LiveIndex, OrderBook, wire
from market_index_http import create_app
from market_index_http.compression import MIN_GZIP_BYTES
from tests.market_index_http.books import LARGE, MIDDLE, PAIR_LIST, SMALL, book, fetch, target
from tests.service import Client, served


class TestGzip:
    """RFC 9110, 12.5.3."""

    @pytest.mark.parametrize(
        ("accepted", "compressed"),
        [
            (None, False),
            ("", False),
            ("gzip", True),
            ("GZip", True),
            ("x-gzip", True),
            ("*", True),
            ("gzip, deflate, br, zstd", True),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", True),
            ("deflate, br", False),
            ("identity", False),
            ("gzip;q=0", False),
            ("gzip;q=0.000", False),
            ("gzip;q=0.001", True),
            ("gzip;q=1.000", True),
            ("gzip ; q=0.5", True),
            ("gzip;Q=0", False),
            ("gzip;q=0, *", False),
            ("*;q=0", False),
            ("*;q=0, gzip", True),
            ("*;q=0.5, gzip;q=0", False),
            ("identity;q=0, gzip;q=0.1", True),
            ("identity;q=0.5, gzip", True),
            ("identity, gzip;q=0.5", False),
            ("identity;q=0.5, *;q=0.4", False),
            ("gzip;q=2", False),
            ("gzip;q=-1", False),
            ("gzip;q=0.0001", False),
            ("gzip;q=x", False),
            ("gzip;q=", False),
            ("gzip;level=9", True),
            ("gzip;level=9;q=0", False),
            (",, gzip ,", True),
            ("gzipped", False),
            ("not-gzip", False),
            ("\u00e9, gzip", True),
            ("br," * 500 + "gzip", False),
            ("\r\nAccept-Encoding: gzip", True),
            ("gzip\r\nAccept-Encoding: identity;q=0.5", True),
            ("br\r\nAccept-Encoding: gzip;q=0", False),
        ],
    )
    def test_it_is_used_if_the_client_ranks_it_no_lower_than_the_plain_body(
        self, client: Client, accepted: str | None, compressed: bool
    ):
        answer = fetch(client, target(MIDDLE.pair), accept_encoding=accepted)
        assert (answer.headers.get("content-encoding") == "gzip") is compressed
        assert int(answer.headers["content-length"]) == len(answer.body)
        assert answer.headers["vary"].lower() == "accept-encoding"
        content = gzip.decompress(answer.body) if compressed else answer.body
        assert wire.order_book_from_json(content) == MIDDLE
        assert not compressed or len(answer.body) < len(content) / 2

    @pytest.mark.parametrize("one", [SMALL, MIDDLE, LARGE])
    @pytest.mark.parametrize("path", ["book", "list"])
    def test_plain_and_compressed_are_the_same_content_under_two_tags(self, client: Client, one: OrderBook, path: str):
        where = target(one.pair) if path == "book" else PAIR_LIST
        plain, packed = fetch(client, where), fetch(client, where, accept_encoding="gzip")
        if len(plain.body) < MIN_GZIP_BYTES:
            assert (packed.body, packed.headers["etag"]) == (plain.body, plain.headers["etag"])
            assert "content-encoding" not in packed.headers
        else:
            assert gzip.decompress(packed.body) == plain.body
            assert packed.headers["etag"] != plain.headers["etag"]


class TestConditions:
    """RFC 9110, 13.1.2."""

    @pytest.mark.parametrize(
        ("condition", "matches"),
        [
            ("{tag}", True),
            ("W/{tag}", True),
            ('"other", {tag}', True),
            ('"other",{tag},"more"', True),
            ('W/"other", W/{tag}', True),
            ("*", True),
            (" * ", True),
            ('"other"\r\nIf-None-Match: {tag}', True),
            ('"other"', False),
            ('"a,b", "c"', False),
            ("{tag}x", True),
            ('"{bare}', False),
            ("{bare}", False),
            ('"x{bare}"', False),
            ('"{bare}-gzip"', False),
            ("", False),
            ('"*"', False),
            ('"\u00e9", {tag}', True),
            ('"\u00e9{bare}"', False),
            ('*, "other"', False),
        ],
    )
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    @pytest.mark.parametrize("where", [PAIR_LIST, target(MIDDLE.pair), target(MIDDLE.pair).replace("abcd", "ABCD")])
    def test_a_matching_tag_is_304_without_a_body(
        self, client: Client, condition: str, matches: bool, method: str, where: str
    ):
        tag = fetch(client, where).headers["etag"]
        condition = condition.replace("{tag}", tag).replace("{bare}", tag.strip('"'))
        answer = fetch(client, where, method, if_none_match=condition)
        assert answer.status == (304 if matches else 200)
        assert (answer.body == b"") is (matches or method == "HEAD")
        assert answer.headers["etag"] == tag
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["vary"].lower() == "accept-encoding"
        if matches:
            assert not {"content-length", "content-type", "content-encoding"} & answer.headers.keys()
        # The connection can be reused.
        assert fetch(client, where).headers["etag"] == tag

    @pytest.mark.parametrize("where", [PAIR_LIST, target(MIDDLE.pair)])
    def test_each_representation_matches_its_own_tag(self, client: Client, where: str, live: LiveIndex):
        live.update([book(number) for number in range(10, 20)])
        packed = fetch(client, where, accept_encoding="gzip").headers["etag"]
        plain = fetch(client, where).headers["etag"]
        assert fetch(client, where, accept_encoding="gzip", if_none_match=packed).status == 304
        assert fetch(client, where, accept_encoding="gzip", if_none_match=plain).status == 200
        assert fetch(client, where, if_none_match=packed).status == 200

    def test_errors_are_not_conditional(self, client: Client):
        errors = {"/trading-view/order-book?base=ADA&quote=ADA": 404, "/trading-view/order-book": 400, "/nowhere": 404}
        for where, status in errors.items():
            assert fetch(client, where, if_none_match="*").status == status

    def test_max_age_is_in_cache_control(self):
        with served(create_app(LiveIndex([SMALL]), max_age=3)) as service:
            for where in (PAIR_LIST, target(SMALL.pair), target(SMALL.pair).replace("abcd", "ABCD")):
                assert service.request(where).headers["cache-control"] == "max-age=3"
