"""The messages that a body sends, and what is cached: tested without a server."""

from __future__ import annotations

import asyncio
import gc
import gzip
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair, wire
from market_index.compressors import FASTEST
from market_index.errors import safe_repr
from market_index_http import bodies, create_app
from market_index_http.bodies import (
    MAX_ENTRIES_ON_LOOP,
    Bodies,
    Body,
    LargeBody,
    SmallBody,
    SpelledBody,
    constant_fields,
)
from market_index_http.compression import GZIP, LARGE_BODY_BYTES, MAX_DEFLATED_ON_LOOP
from market_index_http.slices import Slices
from tests.asgi import request
from tests.market_index_http.books import MIDDLE, SMALL, book, content_of, numbered_pair

CONTENT = b"content " * 100
FIELDS = constant_fields(b"no-cache")
ACCEPTS_GZIP = (b"accept-encoding", b"gzip")
GZIP_TAG = b'"tag-gzip-%b"' % FASTEST.identifier().encode()
OTHER_TAG = b'"tag-gzip-other-00ff"'


def answer(body: Body[Any], *headers: tuple[bytes, bytes], method: str = "GET") -> tuple[int, list[Any], bytes]:
    """Return the status, the headers and the content of the response."""
    messages = body.messages({"method": method, "headers": headers})
    assert messages is not None
    start, *contents = messages
    assert start["type"] == "http.response.start"
    assert {content["type"] for content in contents} == {"http.response.body"}
    assert [content.get("more_body", False) for content in contents] == [True] * (len(contents) - 1) + [False]
    return start["status"], start["headers"], b"".join(content["body"] for content in contents)


def started(body: Body[Any], headers: list[tuple[bytes, bytes]]) -> tuple[Iterator[Any], Any]:
    """Return a response of which only the start was sent, and the start."""
    messages = iter(asyncio.run(body.response({"method": "GET", "headers": headers})).messages)
    return messages, next(messages)


class TestMessages:
    """The messages for one request."""

    BODY = SmallBody(CONTENT, "tag", constant_fields(b"max-age=5"))
    PLAIN = (
        (b"etag", b'"tag"'),
        (b"cache-control", b"max-age=5"),
        (b"vary", b"Accept-Encoding"),
        (b"content-type", b"application/json"),
        (b"content-length", b"800"),
    )

    @pytest.mark.parametrize(("method", "content"), [("GET", CONTENT), ("HEAD", b"")])
    def test_a_body_is_sent_unchanged(self, method: str, content: bytes):
        assert answer(self.BODY, method=method) == (200, [*self.PLAIN], content)

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_a_compressed_body_has_its_own_tag(self, method: str):
        packed = GZIP.whole(CONTENT)
        assert gzip.decompress(packed) == CONTENT
        status, headers, content = answer(self.BODY, ACCEPTS_GZIP, method=method)
        assert (status, content) == (200, packed if method == "GET" else b"")
        assert headers == [
            (b"etag", GZIP_TAG),
            *self.PLAIN[1:4],
            (b"content-length", b"%d" % len(packed)),
            (b"content-encoding", b"gzip"),
        ]

    @pytest.mark.parametrize(
        ("headers", "status", "tag"),
        [
            ([(b"if-none-match", b'"tag"')], 304, b'"tag"'),
            ([(b"if-none-match", b'"other"'), (b"if-none-match", b'W/"tag"')], 304, b'"tag"'),
            ([(b"if-none-match", b'"tag"'), (b"if-none-match", b'"other"')], 304, b'"tag"'),
            ([(b"if-none-match", b"*")], 304, b'"tag"'),
            ([(b"if-none-match", GZIP_TAG), ACCEPTS_GZIP], 304, GZIP_TAG),
            ([(b"if-none-match", GZIP_TAG)], 200, b'"tag"'),
            ([(b"if-none-match", b'"tag"'), ACCEPTS_GZIP], 200, GZIP_TAG),
            ([(b"if-none-match", b"*"), ACCEPTS_GZIP], 304, GZIP_TAG),
            # The tags of other compressors: the response names the one that the client has.
            ([(b"if-none-match", OTHER_TAG), ACCEPTS_GZIP], 304, OTHER_TAG),
            ([(b"if-none-match", b"W/" + OTHER_TAG), ACCEPTS_GZIP], 304, OTHER_TAG),
            ([(b"if-none-match", b'"x", %b, "y"' % OTHER_TAG), ACCEPTS_GZIP], 304, OTHER_TAG),
            ([(b"if-none-match", b"%b, %b" % (OTHER_TAG, GZIP_TAG)), ACCEPTS_GZIP], 304, GZIP_TAG),
            ([(b"if-none-match", b'"tag-gzip"'), ACCEPTS_GZIP], 304, b'"tag-gzip"'),
            ([(b"if-none-match", OTHER_TAG)], 200, b'"tag"'),
            ([(b"if-none-match", b'"tag-br"'), ACCEPTS_GZIP], 200, GZIP_TAG),
            ([(b"if-none-match", b'"tag-gzip-\xff"'), ACCEPTS_GZIP], 200, GZIP_TAG),
            ([(b"if-none-match", b'"other-gzip-zlib"'), ACCEPTS_GZIP], 200, GZIP_TAG),
            ([(b"if-none-match", b'"a"tag-gzip-zlib"'), ACCEPTS_GZIP], 200, GZIP_TAG),
            ([(b"if-match", b'"tag"')], 200, b'"tag"'),
            ([(b"accept-encoding", b"br"), ACCEPTS_GZIP], 200, GZIP_TAG),
            ([ACCEPTS_GZIP, (b"accept-encoding", b"br")], 200, GZIP_TAG),
            ([(b"accept-encoding", b"br"), (b"te", b"gzip")], 200, b'"tag"'),
        ],
    )
    def test_a_matching_tag_is_304_with_only_the_headers_for_caches(
        self, headers: list[tuple[bytes, bytes]], status: int, tag: bytes
    ):
        assert answer(self.BODY, *headers)[0] == status
        assert answer(self.BODY, *headers)[1][0] == (b"etag", tag)
        if status == 304:
            assert answer(self.BODY, *headers)[1:] == ([(b"etag", tag), *self.PLAIN[1:3]], b"")

    def test_each_response_has_its_own_list_of_headers(self):
        answer(self.BODY)[1].clear()
        answer(self.BODY, ACCEPTS_GZIP)[1].clear()
        assert answer(self.BODY)[1] == [*self.PLAIN]

    def test_a_spelled_body_is_not_compressed_and_has_the_given_fields(self):
        body = SpelledBody(
            Slices([(wire.EncodedPart(CONTENT),)]),
            "tag",
            constant_fields(b"no-cache", ((b"content-type", b"text/css"),)),
            bytes.upper,
        )
        _, headers, content = answer(body, ACCEPTS_GZIP)
        assert content == CONTENT.upper()
        assert headers == [
            (b"etag", b'"tag"'),
            (b"cache-control", b"no-cache"),
            (b"vary", b"Accept-Encoding"),
            (b"content-type", b"text/css"),
            (b"content-length", b"800"),
        ]

    def test_a_large_body_is_compressed_before_it_is_sent(self):
        content = b"x" * (MAX_DEFLATED_ON_LOOP + 1)
        body = LargeBody((wire.EncodedPart(content),), "tag", FIELDS)
        assert body.messages({"method": "GET", "headers": [ACCEPTS_GZIP]}) is None
        response = request(body, "/", headers={"accept-encoding": "gzip"})
        assert (response.status, gzip.decompress(response.body)) == (200, content)
        assert answer(body, ACCEPTS_GZIP)[2] == response.body

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_a_large_body_is_sent_in_slices(self, method: str):
        deep = book(3, 20_000)
        parts = wire.encoded_order_book(deep)
        body = LargeBody(parts, "tag", FIELDS)
        status, headers, content = answer(body, method=method)
        assert (status, content) == (200, wire.order_book_to_json(deep) if method == "GET" else b"")
        assert dict(headers)[b"content-length"] == b"%d" % len(wire.order_book_to_json(deep))
        assert list(body.messages({"method": method, "headers": []}) or ())[1].get("more_body", False) is (
            method == "GET"
        )

    @pytest.mark.parametrize("is_decoded", [False, True])
    @pytest.mark.parametrize("accepted", [[], [ACCEPTS_GZIP]])
    def test_responses_that_clients_do_not_read_share_the_content_of_all_versions(
        self, is_decoded: bool, accepted: list[tuple[bytes, bytes]]
    ):
        one, cache, waiting = book(3, 10_000), Bodies(), []
        base = str(one.pair.base).upper()
        current = cache.order_book(one)
        current._compress()
        length = len(wire.order_book_to_json(one))
        tracemalloc.start()
        try:
            for amount in range(1, 21):
                # Changes everywhere, so that each slice differs.
                one = one.apply(bids=[(f"0.{price:06}", amount) for price in range(1, 10_001, 500)])
                if is_decoded:
                    one = wire.order_book_from_json(wire.order_book_to_json(one))
                previous, current = current, cache.order_book(one)
                for answering in (current, cache.respelled(current, one.pair, base, "ADA")):
                    waiting.append(started(answering, accepted))
                assert previous is not current
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert grown < 16 * length
        contents = [b"".join(message["body"] for message in messages) for messages, _ in waiting]
        assert len(set(contents)) == len(waiting) == 40
        for content, (_, start) in zip(contents, waiting, strict=True):
            assert dict(start["headers"])[b"content-length"] == b"%d" % len(content)
        if accepted:
            assert gzip.decompress(contents[-2]) == wire.order_book_to_json(one)


class TestCache:
    """One body per book, and one of the pair list."""

    @pytest.mark.parametrize(
        ("max_age", "cache_control"), [(None, b"no-cache"), (0, b"max-age=0"), (2**31, b"max-age=2147483648")]
    )
    def test_max_age_is_in_every_response(self, max_age: int | None, cache_control: bytes):
        cache = Bodies(max_age)
        spelled = cache.respelled(cache.order_book(SMALL), SMALL.pair, "base", "quote")
        for body in (cache.order_book(SMALL), cache.pair_list(MarketIndex()), spelled):
            assert answer(body)[1][1] == (b"cache-control", cache_control)

    @pytest.mark.parametrize("max_age", [-1, 1.5, True, "3", 2**31 + 1, pytest.param(10**5000, id="huge")])
    def test_an_invalid_max_age_is_rejected(self, max_age: Any):
        with pytest.raises(ValueError, match="max_age") as rejected:
            create_app(LiveIndex(), max_age=max_age)
        assert str(rejected.value) == (
            f"max_age must be None or a whole number of seconds from 0 to 2^31, got {safe_repr(max_age)}"
        )

    def test_a_book_is_encoded_once(self):
        cache, equal = Bodies(), book(2)
        body = cache.order_book(MIDDLE)
        assert content_of(body) == wire.order_book_to_json(MIDDLE)
        assert body.digest == wire.digest_of(wire.encoded_order_book(MIDDLE)).hex()
        assert cache.order_book(MIDDLE) is body
        assert cache.order_book(equal) is not body
        assert cache.order_book(equal).digest == body.digest

    def test_a_pair_list_is_cached_until_a_spot_price_changes(self):
        cache, index = Bodies(), MarketIndex([SMALL, MIDDLE])
        body = cache.pair_list(index)
        assert content_of(body) == wire.pair_list_to_json(index.pair_list())
        assert body.digest == wire.digest_of(wire.encoded_pair_list(index)).hex()
        assert cache.pair_list(index) is body
        assert cache.pair_list(index.with_books(SMALL.apply(bids=[("0.000001", 9)]))) is body
        changed = index.with_books(SMALL.apply(spot="9"))
        assert content_of(cache.pair_list(changed)) == wire.pair_list_to_json(changed.pair_list())

    def test_each_spelling_has_its_own_tag(self):
        cache = Bodies()
        pair = Pair(AssetId(b"\xab" * 28, b""), ADA)
        book = OrderBook.from_levels(pair, asks=[(str(price), price) for price in range(1, 30)])
        body, changed = cache.order_book(book), cache.order_book(book.apply(spot="9"))
        bases = str(pair.base).upper(), str(pair.base).capitalize()
        spelled = [cache.respelled(one, pair, base, "ADA") for one in (body, changed) for base in bases]
        assert len({one.digest for one in (body, changed, *spelled)}) == 6
        assert {len(one.digest) for one in (body, *spelled)} == {32}
        assert cache.respelled(body, pair, bases[0], "ADA").digest == spelled[0].digest
        content = wire.with_identifiers(content_of(body), pair, bases[0], "ADA")
        assert content != content_of(body)
        assert answer(spelled[0], ACCEPTS_GZIP)[2] == content

    def test_only_a_large_body_keeps_its_parts(self):
        for size, expected in ((LARGE_BODY_BYTES - 1, SmallBody), (LARGE_BODY_BYTES, LargeBody)):
            parts = wire.EncodedPart(b"x"), wire.EncodedPart(b"y" * (size - 1))
            assert type(Bodies()._body(parts, "tag")) is expected

    def test_the_body_of_a_small_book_takes_few_blocks_of_memory(self):
        cache, small = Bodies(), [book(number) for number in range(2, 300)]
        cache.order_book(small[0])
        before = sys.getallocatedblocks()
        for one in small:
            cache.order_book(one)
        # The weak reference, the body, its content and its entity tag.
        assert (sys.getallocatedblocks() - before) / len(small) < 5

    def test_small_bodies_of_one_length_share_their_header_fields(self):
        cache = Bodies()
        one, other = cache.order_book(book(2)), cache.order_book(book(3))
        assert len(content_of(one)) == len(content_of(other))
        assert content_of(one) != content_of(other)
        assert one._fields is other._fields

    def test_the_body_of_a_freed_book_may_be_dropped_twice(self):
        cache = Bodies()
        cache.order_book(MIDDLE)
        cached = cache._order_books[MIDDLE.pair]
        for _ in range(2):
            cache._forget(cached)
        assert not cache._order_books


class TestThreads:
    """Which values are encoded in a thread."""

    LONGEST = book(4, MAX_ENTRIES_ON_LOOP // 2)
    INDEX = MarketIndex(OrderBook(numbered_pair(number)) for number in range(MAX_ENTRIES_ON_LOOP))

    def test_a_large_book_is_slow_until_it_is_cached(self):
        cache, slow = Bodies(), self.LONGEST.apply(bids=[("0.0000001", 1)])
        assert not cache.is_slow_book(self.LONGEST)
        assert cache.is_slow_book(slow)
        cache.order_book(slow)
        assert not cache.is_slow_book(slow)
        assert cache.is_slow_book(slow.apply(spot="9"))

    def test_a_large_pair_list_is_slow_until_it_is_cached(self):
        cache, slow = Bodies(), self.INDEX.with_books(OrderBook(numbered_pair(MAX_ENTRIES_ON_LOOP)))
        assert not cache.is_slow_list(self.INDEX)
        assert cache.is_slow_list(slow)
        cache.pair_list(slow)
        assert not cache.is_slow_list(slow)
        assert cache.is_slow_list(slow.with_books(MIDDLE))

    def test_only_large_values_are_encoded_in_a_thread(self, monkeypatch: pytest.MonkeyPatch):
        threads: list[int] = []

        def noting(encode: Any) -> Any:
            def noted(value: Any) -> Any:
                threads.append(threading.get_ident())
                return encode(value)

            return noted

        monkeypatch.setattr(bodies, "encoded_order_book", noting(wire.encoded_order_book))
        monkeypatch.setattr(bodies, "encoded_pair_list", noting(wire.encoded_pair_list))
        cache, some = Bodies(), (self.LONGEST, self.LONGEST.apply(bids=[("0.0000001", 1)]))
        indexes = self.INDEX, self.INDEX.with_books(OrderBook(numbered_pair(MAX_ENTRIES_ON_LOOP)))
        books = [asyncio.run(cache.order_book_from_thread(one)) for one in some]
        lists = [asyncio.run(cache.pair_list_from_thread(one)) for one in indexes]
        assert [content_of(one) for one in books] == [wire.order_book_to_json(one) for one in some]
        assert [content_of(one) for one in lists] == [wire.pair_list_to_json(one.pair_list()) for one in indexes]
        assert [thread == threading.get_ident() for thread in threads] == [True, False, True, False]
