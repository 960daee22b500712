"""Bodies are encoded and compressed once per value, and never stale: tested through a real uvicorn."""

from __future__ import annotations

import gc
import gzip
import json
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from market_index import LiveIndex, MarketIndex, OrderBook, Pair, wire
from market_index.chunked import BOUNDARY_MASK
from market_index.compressors import FASTEST, Compressor
from market_index.strategies import order_books, pairs
from market_index.wire import encode, internal
from market_index_http import create_app
from market_index_http.bodies import Bodies, LargeBody, SmallBody, constant_fields
from market_index_http.compression import GZIP, LARGE_BODY_BYTES, MAX_DEFLATED_ON_LOOP, MIN_GZIP_BYTES, GzipEncoder
from market_index_http.slices import Group, Slices
from tests.market_index_http.books import (
    MIDDLE,
    PAIR_LIST,
    Counted,
    book,
    content_of,
    fetch,
    numbered_pair,
    target,
)
from tests.service import Client, served
from tests.waiting import DEADLINE_SECONDS, eventually

FIELDS = constant_fields(b"no-cache")


class TestCompression:
    """A body is compressed once; off the event loop if that takes long."""

    def test_a_large_body_is_compressed_once_and_off_the_event_loop(self, monkeypatch: pytest.MonkeyPatch):
        # Equal texts share their compressed form: no other test has these amounts.
        large = book(81, 3_000)
        compressing, go_on = threading.Event(), threading.Event()
        times: list[int] = []
        really = GzipEncoder.slices

        def slowly(encoder: GzipEncoder, content: Slices, groups: Sequence[Group]) -> Slices:
            times.append(len(content))
            compressing.set()
            assert go_on.wait(DEADLINE_SECONDS)
            return really(encoder, content, groups)

        waiting = Counted(LargeBody._compress)
        monkeypatch.setattr(GzipEncoder, "slices", slowly)
        monkeypatch.setattr(LargeBody, "_compress", lambda body: waiting(body))  # noqa: PLW0108  # to be a method

        def ask(port: int) -> bytes:
            client = Client(port)
            answer = fetch(client, target(large.pair), accept_encoding="gzip")
            client.close()
            return gzip.decompress(answer.body)

        with served(create_app(LiveIndex([large]))) as service, ThreadPoolExecutor(5) as threads:
            answers = [threads.submit(ask, service.port) for _ in range(5)]
            assert compressing.wait(DEADLINE_SECONDS)
            eventually(lambda: waiting.calls == 5)
            # Meanwhile the server answers other requests.
            assert service.pair_list().status == 200
            go_on.set()
            contents = {answer.result() for answer in answers}
            assert len(contents) == 1
            assert times == [len(contents.pop())]
            assert times[0] >= LARGE_BODY_BYTES

    def test_a_large_body_whose_parts_are_mostly_cached_is_compressed_on_the_event_loop(self):
        bodies, live = Bodies(), LiveIndex([book(number, 1) for number in range(5_000)])
        scope = {"method": "GET", "headers": [(b"accept-encoding", b"gzip")]}

        def packed() -> bytes | None:
            messages = bodies.pair_list(live.current).messages(scope)
            return None if messages is None else gzip.decompress(b"".join(one.get("body", b"") for one in messages))

        assert packed() is None, "no part is cached"
        bodies.pair_list(live.current)._compress()
        live.publish(book(7, 1, spot="3"))
        assert packed() == wire.pair_list_to_json(live.current.pair_list())
        live.publish(*(book(number, 1, spot="4") for number in range(5_000)))
        assert packed() is None, "all parts are new"

    def test_the_checksum_of_a_very_large_body_is_not_computed_on_the_event_loop(self):
        part = internal.EncodedPart(b"x")
        assert GZIP.is_quick(7 * 2**20, [(part,)])
        assert not GZIP.is_quick(9 * 2**20, [(part,)])

    def test_very_many_parts_are_not_joined_on_the_event_loop(self):
        part = internal.EncodedPart(b"x")
        assert GZIP.is_quick(2_000, [(part,) * 100] * 20)
        assert not GZIP.is_quick(2_001, [(part,) * 2_001])

    @pytest.mark.parametrize("is_quick", [False, True])
    def test_the_event_loop_does_not_wait_for_a_thread_that_compresses(
        self, monkeypatch: pytest.MonkeyPatch, is_quick: bool
    ):
        content = b"x" * (LARGE_BODY_BYTES if is_quick else MAX_DEFLATED_ON_LOOP + 1)
        body = LargeBody((internal.EncodedPart(content),), "tag", FIELDS)
        compressing, go_on = threading.Event(), threading.Event()
        really, event_loop = GzipEncoder.slices, threading.get_ident()

        def slowly(encoder: GzipEncoder, content: Slices, groups: Sequence[Group]) -> Slices:
            compressing.set()
            assert threading.get_ident() == event_loop or go_on.wait(DEADLINE_SECONDS)
            return really(encoder, content, groups)

        monkeypatch.setattr(GzipEncoder, "slices", slowly)
        scope = {"method": "GET", "headers": [(b"accept-encoding", b"gzip")]}
        with ThreadPoolExecutor(1) as threads:
            compressed = threads.submit(body._compress)
            assert compressing.wait(DEADLINE_SECONDS)
            assert (body.messages(scope) is not None) is is_quick
            go_on.set()
            compressed.result()
        assert body.messages(scope) is not None

    @pytest.mark.parametrize("size", [MIN_GZIP_BYTES - 1, MIN_GZIP_BYTES])
    def test_the_smallest_compressed_size_is_exact(self, size: int):
        body = SmallBody(b"x" * size, "tag", FIELDS)
        start, _ = body.messages({"method": "GET", "headers": [(b"accept-encoding", b"gzip")]}) or ()
        assert ((b"content-encoding", b"gzip") in start["headers"]) is (size >= MIN_GZIP_BYTES)

    def test_a_book_in_which_each_level_is_a_part_is_compressed_in_slices(self, client: Client, live: LiveIndex):
        prices = [f"0.{price:06}1" for price in range(120_000)]
        ends = [price for price in prices if not crc32(price.encode()) & BOUNDARY_MASK]
        book = OrderBook.from_levels(numbered_pair(9), asks=[(price, 1) for price in ends])
        assert len(book.asks.chunks) == len(ends) + 1 > 1_000
        live.publish(book)
        plain, packed = fetch(client, target(book.pair)), fetch(client, target(book.pair), accept_encoding="gzip")
        assert gzip.decompress(packed.body) == plain.body
        assert len(packed.body) < 1.1 * len(GZIP.whole(plain.body))


def test_another_spelling_is_echoed_under_its_own_etag_and_is_never_stale(client: Client, live: LiveIndex):
    upper_target = target(MIDDLE.pair).replace("abcd", "ABCD")
    for spot in ("1", "2"):
        live.publish(book(2, 30, spot))
        plain, upper = fetch(client, target(MIDDLE.pair)), fetch(client, upper_target)
        assert plain.json["spot"] == upper.json["spot"] == spot
        assert upper.json["base"] == plain.json["base"].replace("abcd", "ABCD")
        assert upper.headers["etag"] != plain.headers["etag"]
        assert upper.json | {"base": plain.json["base"]} == plain.json
        assert fetch(client, upper_target, accept_encoding="gzip").body == upper.body
    live.publish(MIDDLE)


def test_another_spelling_is_copied_only_when_it_is_sent(client: Client, monkeypatch: pytest.MonkeyPatch):
    copies = Counted(internal.with_identifiers)
    monkeypatch.setattr("market_index_http.bodies.with_identifiers", copies)
    upper_target = target(MIDDLE.pair).replace("abcd", "ABCD")
    head = fetch(client, upper_target, "HEAD")
    assert fetch(client, upper_target, if_none_match=head.headers["etag"]).status == 304
    assert copies.calls == 0
    got = fetch(client, upper_target)
    assert copies.calls == 1
    assert {**head.headers, "date": ""} == {**got.headers, "date": ""}


def test_each_value_is_encoded_once(monkeypatch: pytest.MonkeyPatch):
    sides, entries = Counted(encode._levels_template), Counted(encode._entry)
    packed_books, packed_lists = Counted(GZIP.whole), Counted(GZIP.slices)
    monkeypatch.setattr(encode, "_levels_template", sides)
    monkeypatch.setattr(encode, "_entry", entries)
    monkeypatch.setattr(GzipEncoder, "whole", packed_books)
    monkeypatch.setattr(GzipEncoder, "slices", packed_lists)
    live = LiveIndex([book(number) for number in range(500)])
    with served(create_app(live)) as service:
        client = Client(service.port)

        def calls() -> tuple[int, int, int]:
            return sides.calls, entries.calls, packed_books.calls + packed_lists.calls

        def ask_all() -> None:
            for _ in range(3):
                for colon in (":", "%3A"):
                    fetch(client, target(numbered_pair(7)).replace(":", colon))
                    fetch(client, target(numbered_pair(8)).replace(":", colon), accept_encoding="gzip")
                fetch(client, PAIR_LIST)
                fetch(client, PAIR_LIST, accept_encoding="gzip")

        ask_all()
        assert calls() == (4, 500, 2)
        live.publish(book(7, spot="1"))
        ask_all()
        # One book, one chunk of entries and the list (in gzip too) are new. The unchanged book is not encoded again.
        [chunk] = [chunk for chunk in live.current.chunks if numbered_pair(7).ledger_order in chunk.keys]
        assert calls() == (6, 500 + len(chunk.keys), 3)
        live.publish(book(7, 31, spot="1"))
        ask_all()
        # The pair list did not change.
        assert calls() == (8, 501, 3)
        live.update([book(number) for number in range(1_000, 1_300)], [numbered_pair(100)])
        ask_all()
        assert calls() == (8, 801, 4)
        client.close()


def test_a_change_deflates_one_part_of_a_large_book_and_of_a_large_list(monkeypatch: pytest.MonkeyPatch):
    deflated = Counted(FASTEST.deflated_part)
    monkeypatch.setattr(Compressor, "deflated_part", deflated)
    live = LiveIndex([book(number, 1_500 if number == 7 else 1) for number in range(500)])
    with served(create_app(live)) as service:
        client = Client(service.port)

        def ask_both() -> int:
            before = deflated.calls
            for where in (target(numbered_pair(7)), PAIR_LIST):
                plain, packed = fetch(client, where), fetch(client, where, accept_encoding="gzip")
                assert len(plain.body) > LARGE_BODY_BYTES
                assert gzip.decompress(packed.body) == plain.body
            return deflated.calls - before

        assert ask_both() > 40
        live.publish(live.current.order_book(numbered_pair(7)).apply(bids=[("0.000001", 99)], spot="3"))
        # The start of the book, which has the spot price, and one chunk of levels; one chunk of the list.
        assert ask_both() == 3
        assert ask_both() == 0
        client.close()


def test_memory_is_flat_over_many_publishes_and_bodies_are_freed_with_their_books():
    live = LiveIndex([book(number, 1) for number in range(200)])
    bodies = Bodies()

    def publish(count: int) -> None:
        for number in range(count):
            live.publish(book(number % 250, 1, spot=str(number + 1)))
            live.retract(numbered_pair((number * 7) % 250))
            bodies.pair_list(live.current)
            for one in list(live.current.values())[number % 50 : number % 50 + 3]:
                bodies.order_book(one)

    publish(500)
    gc.collect()
    tracemalloc.start()
    try:
        publish(250)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        publish(1_000)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < before + 50_000
    finally:
        tracemalloc.stop()
    assert len(bodies._order_books) <= len(live.current)
    for one in list(live.current.values()):
        bodies.order_book(one)
    assert len(bodies._order_books) == len(live.current)
    live.retract(*live.current)
    del one
    gc.collect()
    assert len(bodies._order_books) == 0


@given(data=st.data())
def test_a_pair_list_made_from_the_previous_one_equals_one_made_from_scratch(data: st.DataObject):
    bodies = Bodies()
    index = MarketIndex(OrderBook(numbered_pair(number)) for number in range(data.draw(st.sampled_from([0, 3, 300]))))
    tags: dict[bytes, str] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(["spot", "levels", "many", "without", "same"]))
        start = data.draw(st.integers(0, 400))
        many = range(start, start + data.draw(st.integers(1, 200)), data.draw(st.integers(1, 3)))
        if kind == "spot":
            index = index.with_books(OrderBook(numbered_pair(start), spot=str(data.draw(st.integers(1, 3)))))
        elif kind == "levels":
            index = index.with_books(OrderBook.from_levels(numbered_pair(start), bids=[("1", 1)]))
        elif kind == "many":
            index = index.with_books(*(OrderBook(numbered_pair(number), spot="2") for number in many))
        elif kind == "without":
            index = index.without(*map(numbered_pair, many))
        body, scratch = bodies.pair_list(index), Bodies().pair_list(MarketIndex(index.values()))
        assert content_of(body) == content_of(scratch) == wire.pair_list_to_json(index.pair_list())
        assert json.loads(content_of(body))
        tag = body._etag
        assert tag == scratch._etag
        assert tags.setdefault(content_of(body), str(tag)) == str(tag)
        assert bodies.pair_list(index) is body
    assert len(set(tags.values())) == len(tags)


class NeverStale(RuleBasedStateMachine):
    """Publishes, retracts and reads over HTTP. Every response must match the last publish, by a model in a dict."""

    # A state machine takes no fixtures: `served_for_the_machine` sets these.
    live: LiveIndex
    port: int

    @initialize()
    def start(self) -> None:
        self.client = Client(self.port)
        self.live.retract(*self.live.current)
        self.model: dict[Pair, OrderBook] = {}
        self.seen: dict[tuple[str, str | None], tuple[str, bytes]] = {}

    @rule(book=order_books(max_levels=3), another=st.booleans(), data=st.data())
    def publish(self, book: OrderBook, another: bool, data: st.DataObject) -> None:
        if self.model and another:
            book = OrderBook(data.draw(st.sampled_from(sorted(self.model))), book.bids, book.asks, book.spot)
        self.live.publish(book)
        self.model[book.pair] = book

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        if self.model:
            pair = data.draw(st.sampled_from(sorted(self.model)))
            self.model[pair] = self.model[pair].apply(bids=[("1", data.draw(st.integers(0, 3)))])
            self.live.publish(self.model[pair])

    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        if self.model:
            pair = data.draw(st.sampled_from(sorted(self.model)))
            self.live.retract(pair)
            del self.model[pair]

    @rule(data=st.data(), accepted=st.sampled_from([None, "gzip"]), conditional=st.booleans(), upper=st.booleans())
    def read_a_book(self, data: st.DataObject, accepted: str | None, conditional: bool, upper: bool) -> None:
        tracked = st.sampled_from(sorted(self.model) or [numbered_pair(1)])
        pair = data.draw(st.one_of(pairs(), tracked))
        base = str(pair.base).upper() if upper else str(pair.base)
        where = f"/trading-view/order-book?base={base}&quote={pair.quote}"
        content = self.read(where, accepted, conditional)
        if pair in self.model:
            assert content is not None
            assert wire.order_book_from_json(content) == self.model[pair]
            assert json.loads(content)["base"] == base
        else:
            assert content is None

    @rule(accepted=st.sampled_from([None, "gzip"]), conditional=st.booleans())
    def read_the_list(self, accepted: str | None, conditional: bool) -> None:
        content = self.read(PAIR_LIST, accepted, conditional)
        assert content is not None
        assert [(f"{one['base']}/{one['quote']}", one["last_spot"]) for one in json.loads(content)["pairs"]] == [
            (str(pair), None if (spot := self.model[pair].spot) is None else format(spot, "f"))
            for pair in sorted(self.model)
        ]

    def read(self, where: str, accepted: str | None, conditional: bool) -> bytes | None:
        """Return the content that a caching client gets; None for 404."""
        tag, content = self.seen.get((where, accepted), (None, b""))
        answer = fetch(self.client, where, accept_encoding=accepted, if_none_match=tag if conditional else None)
        if answer.status == 404:
            return None
        if answer.status == 304:
            assert answer.headers["etag"] == tag
            return content
        content = gzip.decompress(answer.body) if "content-encoding" in answer.headers else answer.body
        self.seen[where, accepted] = answer.headers["etag"], content
        return content

    def teardown(self) -> None:
        self.client.close()


@pytest.fixture(scope="module", autouse=True)
def served_for_the_machine() -> Iterator[None]:
    NeverStale.live = LiveIndex()
    with served(create_app(NeverStale.live)) as service:
        NeverStale.port = service.port
        yield


TestNeverStale = NeverStale.TestCase
TestNeverStale.settings = settings(settings(), max_examples=settings().max_examples // 2, stateful_step_count=30)
