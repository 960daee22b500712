"""A feed of a running service: what other media do not have. The laws of all media are in `contract`."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from threading import Event, current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import trustme

from market_index import (
    Freshness,
    LiveIndex,
    MarketIndex,
    OrderBook,
    Pair,
    PairInfo,
    PairNotFound,
    wire,
)
from market_index.wire import format_time
from market_index_feeds import Feed, FeedError, NoVersion, Version, http, open_feed
from market_index_feeds import service as module
from market_index_feeds.service import ServiceSource
from market_index_http.stream import audience
from tests.apps import composed
from tests.feeds.contract.medium import Reader, Ticks
from tests.feeds.made_up import book, pair, spots
from tests.feeds.services import HOLD, Answer, Front, sending, served
from tests.waiting import DEADLINE_SECONDS, in_thread

ONE, TWO, THREE = pair(1), pair(2), pair(3)
NOW = datetime(2026, 11, 22, 4, 17, 3, 123000, tzinfo=UTC)
FRESH = {"Market-Index-As-Of": "slot 1", "Market-Index-Published-At": format_time(NOW)}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a service without waiting."""
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.01)


@pytest.fixture
def upstream() -> LiveIndex:
    """The live index of the service."""
    live = LiveIndex()
    live.update([book(1, 1), book(2, 2)], freshness=Freshness("slot 1", NOW))
    return live


@pytest.fixture
def front(upstream: LiveIndex) -> Front:
    """A service that is polled."""
    return Front(upstream)


@pytest.fixture
def streaming(upstream: LiveIndex) -> Front:
    """The same service with a stream."""
    return Front(upstream, has_stream=True)


@pytest.fixture
def url(front: Front) -> Iterator[str]:
    with served(front) as url:
        yield url


@pytest.fixture
def stream_url(streaming: Front) -> Iterator[str]:
    with served(streaming) as url:
        yield url


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex()


SECRETS = ("s3cret", "pass", b64encode(b"us:er:pass word").decode())


def answer(body: bytes, **headers: str) -> Answer:
    return 200, FRESH | {name.replace("_", "-"): value for name, value in headers.items()}, body


def body_of(number: int, spot: object) -> bytes:
    return wire.order_book_to_json(book(number, spot))


def event(name: str, text: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), text)


def books(*numbers: int, spot: object) -> bytes:
    return b"".join(event("book", body_of(number, spot)) for number in numbers)


def ends(slot: int) -> bytes:
    return event("version", wire.freshness_to_json(Freshness(f"slot {slot}")))


def change(number: int, spot: object) -> bytes:
    return event("change", wire.order_book_changes_to_json(book(number, spot), OrderBook(pair(number))))


def retracted(number: int) -> bytes:
    return event("retract", wire.pair_to_json(pair(number)))


def spoiled(number: int) -> bytes:
    """Return an invalid book."""
    return event("book", wire.pair_to_json(pair(number)).replace(b"}", b',"bids":7}'))


REPAIRED = books(1, spot=2) + retracted(2)


def deep(number: int, step: int) -> OrderBook:
    """Return a book of many levels, of which one of each side depends on the step, as does the spot price."""
    bids = [*((str(price), price) for price in range(1, 60)), ("100", step)]
    asks = [*((str(price), price) for price in range(201, 260)), (str(100 + step), step)]
    return OrderBook.from_levels(pair(number), bids, asks, spot=str(step))


class Clock:
    """A clock that a test sets. Each reading advances it by `step` seconds."""

    def __init__(self, step: float = 0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def slot_of(index: MarketIndex) -> int:
    return int((index.as_of or "slot 0").removeprefix("slot "))


class TestStream:
    def test_one_request_follows_all_pairs(self, streaming: Front, stream_url: str, upstream: LiveIndex):
        names: list[bytes] = []

        def named(text: bytes) -> bytes:
            names.extend(re.findall(rb"^event: .*", text, re.MULTILINE))
            return text

        streaming.rewrite = named
        upstream.publish(deep(3, 1))
        with Reader(open_feed(stream_url)) as reader:
            reader.pull()
            for step in range(2, 9):
                upstream.update([deep(3, step)], freshness=Freshness(f"slot {step}"))
                reader.until(lambda version, step=step: slot_of(version.index) == step)  # type: ignore[misc]  # a bound value
                assert reader.index == upstream.current
            assert reader.index[ONE] is reader.versions[0].index[ONE]
        assert (len(streaming.streams), streaming.requests) == (1, [])
        assert streaming.streams[0]["user-agent"].startswith("market-index/0.")
        assert streaming.streams[0]["accept-encoding"] == "identity"
        assert (names.count(b"event: change"), names.count(b"event: book")) == (7, 3)

    def test_a_change_of_many_books_is_atomic_over_two_services(
        self, upstream: LiveIndex, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        """Each event is sent alone, and read at once, so that a part of a change would become a version."""
        monkeypatch.setattr(audience, "PIECE_BYTES", 1)

        def whole(step: int) -> MarketIndex:
            return MarketIndex([deep(number, step) for number in range(step, step + 20)], f"slot {step}")

        with (
            served(composed(upstream, stream=True)) as first,
            served(composed(live, stream=True)) as second,
            Reader(open_feed(first)) as hop,
            Reader(open_feed(second)) as reader,
        ):
            for step in range(1, 6):
                upstream.show(whole(step))
                for version in hop.until(lambda version, step=step: slot_of(version.index) == step):  # type: ignore[misc]  # a bound value
                    live.show(version.index)
                    reader.until(lambda read, shown=version.index: read.index == shown)  # type: ignore[misc]  # a bound value
            for version in hop.versions + reader.versions:
                assert version.index == whole(slot_of(version.index))
            assert slot_of(reader.index) == 5

    @pytest.mark.parametrize(
        ("first", "second", "shown", "invalid"),
        [
            # What no version has ended is not shown.
            (ends(1) + books(1, spot=9) + retracted(2) + b"event: ve", books(1, 2, spot=5), {1: "5", 2: "5"}, []),
            # A stream begins with the whole content. A change of a book of an earlier stream is not applied.
            (ends(1), books(1, spot=1), {1: "1"}, []),
            (ends(1), books(1, spot=2) + change(1, 3), {1: "3"}, []),
            (ends(1), books(1, 2, spot=2) + ends(1) + retracted(2) + books(2, spot=3), {1: "2", 2: "3"}, []),
            # A valid book or a retraction repairs an invalid record.
            (ends(1), books(3, spot=3) + spoiled(1) + spoiled(2) + ends(1) + REPAIRED, {1: "2", 3: "3"}, []),
        ],
    )
    def test_what_streams_show(
        self, streaming: Front, stream_url: str, first: bytes, second: bytes, shown: object, invalid: list[Pair]
    ):
        streaming.scripts = [[books(1, 2, spot=1), ends(1)], [books(1, 2, spot=1), first], [second, ends(2), HOLD]]
        with Reader(open_feed(stream_url)) as reader:
            before = reader.pull().index[ONE]
            reader.until(lambda version: spots(version.index) == shown)
            assert reader.versions[-1].invalid == frozenset(invalid)
            assert (reader.index[ONE] is before) == (reader.index[ONE] == before)
            assert {"9"}.isdisjoint(spot for version in reader.versions for spot in spots(version.index).values())

    @pytest.mark.parametrize(
        ("sent", "invalid", "reason"),
        [
            (spoiled(2), TWO, "must be an array"),
            (event("book", b"\xff rubbish"), None, "rejected: "),
        ],
    )
    @pytest.mark.decision(24)
    def test_an_invalid_event_keeps_the_last_book_until_the_stream_is_opened_again(
        self,
        streaming: Front,
        stream_url: str,
        sent: bytes,
        invalid: object,
        reason: str,
        caplog: pytest.LogCaptureFixture,
    ):
        streaming.scripts = [
            [books(1, 2, spot=1), ends(1), sent, ends(2), sent, books(1, spot=7), ends(3)],
            [books(1, 2, spot=8), ends(4), HOLD],
        ]
        with Reader(open_feed(stream_url)) as reader:
            reader.until(lambda version: slot_of(version.index) == 4)
            (version,) = [one for one in reader.versions if spots(one.index) == {1: "7", 2: "1"}]
            assert (version.invalid, reader.feed.health.rejected) == (frozenset({invalid}), 1)
            assert reason in caplog.text
            assert (spots(reader.index), reader.versions[-1].invalid) == ({1: "8", 2: "8"}, frozenset())

    @pytest.mark.parametrize(
        "sent",
        [
            event("change", body_of(2, 2)[:-2]),
            change(2, 1).replace(b'"bids":[]', b'"bids":[{"price":"1","accumulated_liquidity":-1}]'),
            change(3, 9),
            retracted(2) + change(2, 9),
            spoiled(2) + ends(2),
            event("book", b"\xff rubbish") + ends(2),
        ],
    )
    def test_a_change_after_what_cannot_be_read_is_not_shown_and_the_stream_is_opened_again(
        self, streaming: Front, stream_url: str, sent: bytes
    ):
        """The unread event may have changed the book to which the change belongs."""
        streaming.scripts = [
            [books(1, 2, spot=1), ends(1), sent, change(2, 9), ends(3)],
            [books(1, 2, spot=8), ends(4), HOLD],
        ]
        with Reader(open_feed(stream_url)) as reader:
            reader.until(lambda version: slot_of(version.index) == 4)
            assert {"9"}.isdisjoint(spot for version in reader.versions for spot in spots(version.index).values())
            assert (spots(reader.index), reader.versions[-1].invalid) == ({1: "8", 2: "8"}, frozenset())
            assert (reader.feed.health.rejected > 0, reader.feed.health.problem) == (True, None)

    @pytest.mark.parametrize(
        ("sent", "problem"),
        [
            (event("version", b'{"as_of":7}'), "invalid version in the stream: "),
            (event("retract", b"{}"), "a retraction in the stream must name a pair, got "),
            (b"", "the stream has ended"),
        ],
    )
    def test_a_stream_that_cannot_be_understood_is_opened_again(
        self, streaming: Front, stream_url: str, sent: bytes, problem: str
    ):
        streaming.scripts = [
            [books(1, 2, spot=1), ends(1)],
            [books(1, 2, spot=9), sent],
            [books(1, 2, spot=5), ends(2), HOLD],
        ]
        with Reader(open_feed(stream_url)) as reader:
            reader.until(lambda _: f"cannot be read: {problem}" in str(reader.feed.health.problem))
            reader.until(lambda version: slot_of(version.index) == 2)
            assert {"9"}.isdisjoint(spots(version.index)[1] for version in reader.versions)

    def test_an_unexpected_error_of_the_connection_is_a_problem(self, stream_url: str, monkeypatch: pytest.MonkeyPatch):
        async def broken(_: httpx.Response) -> AsyncIterator[bytes]:
            yield books(1, spot=1) + ends(1)
            raise ValueError("a defect")

        monkeypatch.setattr(httpx.Response, "aiter_raw", broken)
        with Reader(open_feed(stream_url)) as reader:
            reader.until(lambda _: reader.feed.health.problem == "unexpected error: a defect")
            assert spots(reader.index) == {1: "1"}

    def test_a_caller_may_run_trio_and_its_signal_handlers_are_not_touched(
        self, streaming: Front, stream_url: str, monkeypatch: pytest.MonkeyPatch
    ):
        """A runner of asyncio in the main thread sets one at each call, and formats the result, a whole version."""

        def fail(*_: object) -> None:
            raise AssertionError

        def library() -> str:
            """Return what runs in this thread, as httpcore asks for it."""
            return "trio" if current_thread() is main_thread() else "asyncio"

        monkeypatch.setitem(sys.modules, "sniffio", SimpleNamespace(current_async_library=library))
        monkeypatch.setattr(signal, "signal", fail)
        streaming.scripts = [[books(1, 2, spot=1), ends(1), HOLD]]
        with Reader(open_feed(stream_url)) as reader:
            assert spots(reader.pull().index) == {1: "1", 2: "1"}
            reader.pull()

    def test_keys_and_events_that_a_stream_adds_are_ignored(self, streaming: Front, stream_url: str):
        added = body_of(1, 3).replace(b'"spot"', b'"added":{"x":[1]},"spot"')
        end = b'{"as_of": "slot 1", "published_at": null, "added": 1}'
        streaming.scripts = [[event("book", added), event("added", b"7"), event("version", end), HOLD]]
        with Reader(open_feed(stream_url)) as reader:
            assert (spots(reader.pull().index), reader.index.as_of) == ({1: "3"}, "slot 1")

    @pytest.mark.parametrize("endless", [b" " * 700, b"\ndata:" + b" " * 700])
    def test_an_event_that_is_larger_than_any_book_is_invalid(
        self, streaming: Front, stream_url: str, endless: bytes, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("market_index.wire.MAX_ORDER_BOOK_BYTES", 1000)
        large = [b"event: book\ndata: " + body_of(2, 2)[:-1], *[endless] * 40, b"\n\n"]
        streaming.scripts = [[books(1, 2, spot=1), ends(1), *large, ends(2), books(1, spot=7), ends(3), HOLD]]
        with Reader(open_feed(stream_url)) as reader:
            reader.until(lambda version: spots(version.index).get(1) == "7")
            assert (spots(reader.index), reader.feed.health.rejected) == ({1: "7", 2: "1"}, 1)
            assert reader.versions[-1].invalid == frozenset({None})

    @pytest.mark.parametrize("sent", [[HOLD], [books(1, 2, spot=7), HOLD], [books(1, spot=7), ends(1), HOLD]])
    def test_a_service_whose_stream_is_withheld_is_polled(
        self, streaming: Front, stream_url: str, sent: list[bytes], caplog: pytest.LogCaptureFixture
    ):
        streaming.scripts = [sent, sent]
        with Reader(Feed(ServiceSource(stream_url, clock=Clock(4)))) as reader:
            reader.until(lambda version: spots(version.index) == {1: "1", 2: "2"})
            assert (len(streaming.streams), reader.feed.health.problem) == (2, None)
            assert caplog.text.count(" from the stream within ") == 2
            # Once polling fails, the stream is tried again.
            streaming.everything = 503, {}, b""
            reader.until(lambda _: reader.feed.health.problem is not None)
            streaming.everything = None
            streams = len(streaming.streams)
            reader.until(lambda _: len(streaming.streams) > streams)

    def test_silences_of_streams_that_lasted_are_no_reason_to_poll(
        self, streaming: Front, stream_url: str, monkeypatch: pytest.MonkeyPatch
    ):
        """Time passes when a stream has sent something, and when it has nothing more."""
        clock, read, started = Clock(), http.Stream.read, set[http.Stream]()

        async def timed(stream: http.Stream, seconds: float) -> bytes:
            received = await read(stream, seconds)
            if received:
                started.add(stream)
            clock.now += 20 if stream in started else 0
            return received

        monkeypatch.setattr(http.Stream, "read", timed)
        streaming.scripts = [[books(1, 2, spot=step) + ends(step), HOLD] for step in range(1, 6)]
        with Reader(Feed(ServiceSource(stream_url, clock=clock))) as reader:
            reader.until(lambda version: slot_of(version.index) == 5)
            assert (len(streaming.streams), streaming.requests) == (5, [])

    @pytest.mark.decision(31)
    def test_a_service_without_pairs_sends_only_comments(
        self, streaming: Front, stream_url: str, upstream: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(module, "SILENCE_SECONDS", 1000)  # this clock is faster than the comments
        upstream.show(MarketIndex())
        source = ServiceSource(stream_url, clock=(clock := Clock()))
        with closing(source.versions(Event())) as versions:
            clock.step = 200
            for _ in range(3):
                assert next(versions) == NoVersion("contains no order book")
                monkeypatch.setattr(module, "SILENCE_SECONDS", inf)
            upstream.publish(book(1, 1))
            found = next(found for found in versions if isinstance(found, Version))
            assert spots(found.index) == {1: "1"}
        assert (len(streaming.streams), streaming.requests) == (1, [])

    def test_a_stream_without_a_version_shows_nothing(self, streaming: Front, stream_url: str):
        streaming.scripts = [[books(1, 2, spot=1), HOLD]]
        with Reader(open_feed(stream_url), Ticks(limit=5)) as reader:
            assert (reader.end(), reader.versions) == (None, [])

    @pytest.mark.parametrize(
        "found",
        [
            (404, {}, b"{}"),
            (405, {}, b""),
            (500, {}, b"oops"),
            (302, {"Location": "/elsewhere"}, b""),
            answer(b"<html>", Content_Type="text/html"),
            answer(books(1, spot=7) + ends(1), Content_Type="text/event-streams"),
        ],
    )
    def test_a_service_without_a_stream_is_polled(self, streaming: Front, stream_url: str, found: Answer):
        streaming.stream = found
        assert spots(open_feed(stream_url).read()) == {1: "1", 2: "2"}

    @pytest.mark.parametrize(
        "media_type", ["Text/Event-Stream", "text/event-stream ; charset=utf-8", "TEXT/EVENT-STREAM;x=y"]
    )
    def test_a_media_type_is_compared_without_case_and_parameters(
        self, streaming: Front, stream_url: str, media_type: str
    ):
        streaming.stream = answer(books(1, spot=7) + ends(1), Content_Type=media_type)
        assert spots(open_feed(stream_url).read()) == {1: "7"}
        assert streaming.requests == []


class TestRequests:
    def test_each_request_says_who_asks_and_what_is_known(self, front: Front, url: str, upstream: LiveIndex):
        front.answers[TWO] = 200, {"ETag": 'W/"weak"', **FRESH}, body_of(2, 2)
        with Reader(open_feed(url)) as reader:
            reader.pull()
            assert [found for found, _ in front.requests] == [None, ONE, TWO]
            for _, headers in front.requests:
                assert headers["user-agent"].startswith("market-index/0.")
                assert (headers["accept-encoding"], "if-none-match" in headers) == ("identity", False)
            front.requests.clear()
            front.answers[TWO] = 304, FRESH, b""
            assert reader.pull() is reader.versions[0]
            tags = [headers["if-none-match"] for _, headers in front.requests]
            assert (len(set(tags)), tags[2]) == (3, 'W/"weak"')
            upstream.publish(book(1, 5))
            reader.pull()
            assert (spots(reader.index), len(reader.versions)) == ({1: "5", 2: "2"}, 2)

    def test_a_prefix_is_part_of_the_base_url(self, url: str):
        for base in (f"{url}/", url.replace("http", "HTTP")):
            assert len(open_feed(base).read()) == 2
        with pytest.raises(FeedError, match=r"no pair list below this URL \(for a Kupo, write kupo: before it\)"):
            open_feed(f"{url}/v1").read()

    def test_a_proxy_of_the_environment_is_not_used(self, url: str, monkeypatch: pytest.MonkeyPatch):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        assert len(open_feed(url).read()) == 2

    def test_keys_that_a_service_adds_are_ignored(self, front: Front, url: str):
        front.answers[ONE] = answer(body_of(1, 1).replace(b'"spot"', b'"added":{"x":[1]},"spot"'))
        pairs = b'{"added":1,"pairs":[%b]}' % b",".join(
            b'{"base":"%b","quote":"ADA","last_spot":null,"more":2}' % str(one.base).encode() for one in (ONE, TWO)
        )
        front.answers[None] = answer(pairs)
        feed = open_feed(url)
        assert (spots(feed.read()), feed.health.rejected) == ({1: "1", 2: "2"}, 0)

    def test_one_book_is_one_request(self, streaming: Front, stream_url: str):
        feed = open_feed(stream_url)
        assert feed.read_order_book(TWO) == book(2, 2)
        assert ([found for found, _ in streaming.requests], streaming.streams) == ([TWO], [])
        assert feed.version is not None
        assert feed.version.index.freshness == Freshness("slot 1", NOW)
        with pytest.raises(PairNotFound):
            open_feed(stream_url).read_order_book(THREE)
        streaming.answers[TWO] = answer(body_of(1, 1))
        with pytest.raises(FeedError, match="must be the book of the requested pair, got that of"):
            open_feed(stream_url).read_order_book(TWO)
        streaming.everything = 404, {}, b"{}"
        with pytest.raises(FeedError, match="there is no pair list below this URL"):
            open_feed(stream_url).read_order_book(TWO)

    def test_headers_and_a_password_are_sent_with_each_request_and_never_shown(
        self, streaming: Front, stream_url: str, caplog: pytest.LogCaptureFixture
    ):
        streaming.everything = 401, {}, b""
        headers = {"x-api-key": "s3cret", "User-Agent": "me/1", "Accept-Encoding": "br"}
        source = ServiceSource(stream_url.replace("//", "//us%3Aer:pass%20word@"), headers)
        with caplog.at_level(logging.DEBUG):
            for read in (lambda: Feed(source).read(), lambda: Feed(source).read_order_book(ONE)):
                with pytest.raises(FeedError, match="has status 401") as raised:
                    read()
                assert not any(secret in str(raised.value) for secret in SECRETS)
        for sent in [*streaming.streams, *(sent for _, sent in streaming.requests)]:
            assert (sent["x-api-key"], sent["user-agent"]) == ("s3cret", "me/1")
            assert (sent["authorization"], sent["accept-encoding"]) == (f"Basic {SECRETS[-1]}", "identity")
        assert (len(streaming.streams), len(streaming.requests)) == (1, 2)
        shown = f"{source!r} {source._address!r} {vars(source)} {caplog.text}"
        assert not any(secret in shown for secret in SECRETS)

    def test_a_redirect_does_not_carry_headers_to_another_host(self, front: Front, url: str):
        elsewhere = Front(LiveIndex([book(1, 9)]), has_stream=True)
        with served(elsewhere) as other:
            front.everything = 307, {"Location": other}, b""
            with pytest.raises(FeedError, match="has status 307"):
                Feed(ServiceSource(url, {"X-API-Key": "s3cret"})).read()
        assert (elsewhere.streams, elsewhere.requests) == ([], [])

    @pytest.mark.parametrize(
        ("headers", "reason"),
        [
            ({"X-API-Key": "s3cret\r\nHost: evil"}, "the value of the header X-API-Key must be printable ASCII"),
            ({"X-API-Key": "s3cret\n"}, "the value of the header X-API-Key must be printable ASCII"),
            ({"X-API-Key": "s3cret "}, "the value of the header X-API-Key must be printable ASCII"),
            ({"X-API-Key": "s3crét"}, "the value of the header X-API-Key must be printable ASCII"),
            ({"X-API-Key": ""}, "the value of the header X-API-Key must be printable ASCII"),
            ({"X-API-Key: s3cret": "x"}, "the name of a header must be a token, such as X-API-Key"),
            ({"X-API-Key\n": "s3cret"}, "the name of a header must be a token, such as X-API-Key"),
            ({"": "s3cret"}, "the name of a header must be a token, such as X-API-Key"),
            ({b"X-API-Key": "s3cret"}, "the name of a header must be a token, such as X-API-Key"),
            ({"X-API-Key": b"s3cret"}, "the value of the header X-API-Key must be printable ASCII"),
            ({"authorization": "s3cret"}, "it must have a password or a header Authorization, got both"),
        ],
    )
    def test_a_header_that_is_not_valid_is_refused_without_its_value(self, headers: Any, reason: str):
        with pytest.raises(FeedError, match=r"^http://host cannot be opened: ") as raised:
            ServiceSource("http://user:pass%20word@host", headers)
        assert reason in str(raised.value)
        assert not any(secret in str(raised.value).replace("a password", "") for secret in ("s3c", *SECRETS))

    @pytest.mark.parametrize(
        "url",
        [
            "http://",
            "http://user:secret@host:0",
            "http://user:se?cret@host",
            "http://host/?secret",
            "http://host?",
            "http://host/#x",
            "http://host:0",
            "http://host:secret",
            "http://\u2100",
        ],
    )
    def test_a_name_that_is_no_base_url_is_refused_without_its_credentials(self, url: str):
        with pytest.raises(
            FeedError, match="cannot be opened: its URL must have http:// or https://, a host"
        ) as raised:
            open_feed(url)
        assert "secret" not in str(raised.value).replace("host:secret", "").replace("/?secret", "")


class TestInvalidResponses:
    @pytest.mark.parametrize(
        ("found", "reason"),
        [
            (answer(b'{"bids": 7}'), "rejected: "),
            (answer(b"\xff\0 rubbish"), "rejected: "),
            (answer(b""), "rejected: "),
            (answer(body_of(1, 1)), "must be the book of the requested pair"),
            (answer(b" " * 2000 + body_of(2, 2)), "must have at most 1000 bytes"),
            ((302, {"Location": "/elsewhere"}, b""), "has status 302"),
            ((500, {}, b"oops\n"), r"has status 500: 'oops\\n'"),
            ((304, {}, b""), "has status 304"),
            ((404, {}, b"{}"), "not found, although the list contains the pair"),
        ],
    )
    def test_an_invalid_book_is_logged_once_and_keeps_the_last_one(
        self,
        front: Front,
        url: str,
        found: Answer,
        reason: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ):
        monkeypatch.setattr("market_index.wire.MAX_ORDER_BOOK_BYTES", 1000)
        front.answers[TWO] = answer(body_of(2, 2))  # without a tag
        with Reader(open_feed(url)) as reader:
            reader.pull()
            front.answers[TWO] = found
            for _ in range(3):
                reader.pull()
            version = reader.versions[-1]
            assert spots(version.index) == {1: "1", 2: "2"}
            assert (version.invalid, reader.feed.health.rejected, reader.feed.health.problem) == (
                frozenset({TWO}),
                1,
                None,
            )
            assert f"the order book of {TWO} rejected: " in caplog.text
            assert reason.replace("\\\\", "\\") in caplog.text
            front.answers.clear()
            reader.pull()
            assert (reader.index.as_of, reader.versions[-1].invalid) == ("slot 1", frozenset())

    @pytest.mark.parametrize(
        ("found", "reason"),
        [
            (answer(b'{"pairs": 7}'), "invalid pair list: "),
            (answer(b" " * 3000), "response to /trading-view/pair-list must have at most 2000 bytes"),
            ((503, {}, b"busy"), "has status 503: 'busy'"),
            ((500, {}, b""), "has status 500"),
            ((404, {}, b""), "there is no pair list below this URL"),
        ],
    )
    def test_without_a_valid_list_the_service_cannot_be_read(
        self, front: Front, url: str, found: Answer, reason: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(module, "MAX_PAIR_LIST_BYTES", 2000)
        with Reader(open_feed(url)) as reader:
            before = reader.pull()
            front.answers[None] = found
            reader.until(lambda _: reader.feed.health.problem is not None)
            assert reason in str(reader.feed.health.problem)
            assert reader.pull() is before
        with pytest.raises(FeedError, match="cannot be read: "):
            open_feed(url).read()

    @pytest.mark.parametrize("has_stream", [True, False])
    def test_a_service_whose_books_are_all_invalid_cannot_be_read(
        self, streaming: Front, stream_url: str, upstream: LiveIndex, *, has_stream: bool
    ):
        if has_stream:
            streaming.rewrite = lambda event: event.replace(b'"bids":[', b'"bids":[7,')
        else:
            streaming.stream = (404, {}, b"")
            streaming.answers = dict.fromkeys(upstream.current, answer(b"[]"))
        with pytest.raises(FeedError, match="contains no valid order book"):
            open_feed(stream_url).read()

    @pytest.mark.parametrize("status", [429, 502, 503, 504])
    def test_a_service_that_can_respond_later_has_no_invalid_book(self, front: Front, url: str, status: int):
        with Reader(open_feed(url)) as reader:
            before = reader.pull()
            front.answers[TWO] = status, {}, b"busy"
            reader.until(lambda _: f"has status {status}: 'busy'" in str(reader.feed.health.problem))
            front.answers.clear()
            reader.until(lambda _: reader.feed.health.problem is None)
            assert (reader.versions, reader.feed.health.rejected) == ([before], 0)

    def test_a_feed_that_waits_for_a_response_can_be_closed(self, live: LiveIndex):
        accepted, released = Event(), Event()
        with sending(lambda _: accepted.set() or released.wait()) as url:  # type: ignore[func-returns-value,arg-type]  # both are called
            feed = open_feed(url)
            thread = in_thread(lambda: (accepted.wait(), feed.close()))  # type: ignore[func-returns-value]  # both are called
            with pytest.raises(FeedError, match="closed while it was loaded"):
                feed.start(live)
            thread.join()
            released.set()

    def test_progress_is_called_while_a_response_is_waited_for(self):
        def interrupt(done: int, total: int) -> None:
            raise SystemExit(done == total)

        released = Event()
        with sending(lambda _: released.wait()) as url:  # type: ignore[arg-type]  # it is called
            with pytest.raises(SystemExit):
                open_feed(url).read(interrupt)
            released.set()

    def test_no_credentials_and_no_request_are_logged(self, stream_url: str, caplog: pytest.LogCaptureFixture):
        with caplog.at_level(logging.INFO):
            open_feed(stream_url).read()
        assert [record for record in caplog.records if not record.name.startswith("uvicorn")] == []

    def test_a_tls_service_must_have_a_valid_certificate(
        self, front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "cert.pem")
        with served(front, tmp_path / "cert.pem") as url:
            named = url.replace("127.0.0.1", "localhost")
            with pytest.raises(FeedError, match="certificate verify failed"):
                open_feed(named).read()
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
            assert spots(open_feed(named).read()) == {1: "1", 2: "2"}
            with pytest.raises(FeedError, match="certificate verify failed"):
                open_feed(url).read()


class TestRounds:
    @pytest.mark.parametrize("number", [2, 3])
    def test_a_round_has_the_pairs_of_its_list(self, front: Front, url: str, upstream: LiveIndex, number: int):
        def change_pairs() -> None:
            upstream.show(MarketIndex([book(1, 1), book(number, 3)]))

        upstream.show(MarketIndex([book(1, 1), book(4, 4)]))  # without a freshness, by which a change would be seen
        front.answers[ONE] = change_pairs  # while the books are read
        with Reader(open_feed(url)) as reader:
            assert spots(reader.pull().index).keys() - {4} == {1}
            reader.pull()
            assert spots(reader.index) == spots(upstream)

    @pytest.mark.parametrize("as_ofs", [True, False], ids=["as_of", "publish time"])
    @pytest.mark.parametrize("seed", range(2))
    def test_a_round_is_a_version_only_if_nothing_was_published_during_it(
        self, front: Front, url: str, upstream: LiveIndex, seed: int, *, as_ofs: bool
    ):
        """Each request may be the moment of a publication. A version is always one that was published."""
        random, published = Random(seed), [upstream.current]

        def publish() -> None:
            if len(published) < 40 and random.random() < 0.2:
                step = len(published) + 1
                freshness = Freshness(f"slot {step}" if as_ofs else None, NOW + timedelta(seconds=step))
                upstream.update([book(number, step) for number in (1, 2, 3)], freshness=freshness)
                published.append(upstream.current)

        front.answers = dict.fromkeys([None, ONE, TWO, THREE], publish)
        with Reader(open_feed(url)) as reader:
            reader.until(lambda version: version.index == published[-1] and len(published) == 40)
            for version in reader.versions:
                assert [one.freshness for one in published if one == version.index] == [version.index.freshness]

    def test_a_service_that_publishes_during_each_round_is_a_problem(self, front: Front, url: str, upstream: LiveIndex):
        steps = count(2)

        def publish() -> None:
            upstream.update([book(1, 1)], freshness=Freshness("slot 1", NOW + timedelta(seconds=next(steps))))

        with Reader(open_feed(url)) as reader:
            before = reader.pull()
            front.answers[TWO] = publish
            reader.until(lambda _: reader.feed.health.problem is not None)
            assert reader.feed.health.problem == "cannot be read: it published during each of 5 rounds of requests"
            front.answers.clear()
            reader.until(lambda _: reader.feed.health.problem is None)
            assert (reader.versions[0], spots(reader.index)) == (before, {1: "1", 2: "2"})
            assert reader.feed.health.rejected == 0

    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            ([FRESH, FRESH, FRESH], Freshness("slot 1", NOW)),
            ([{}, {}, {}], Freshness()),
            ([{"Market-Index-As-Of": "slot 1", "Market-Index-Published-At": "late"}] * 3, Freshness()),
            ([FRESH, FRESH, FRESH | {"Market-Index-Published-At": "2026-11-22T04:17:02Z"}], None),
            ([FRESH, FRESH | {"Market-Index-As-Of": "slot 2"}, FRESH], None),
            ([{}, FRESH, FRESH], None),
        ],
    )
    def test_the_freshness_of_a_round_is_that_of_each_response(
        self, front: Front, url: str, headers: list[dict[str, str]], expected: Freshness | None
    ):
        bodies = [
            wire.pair_list_to_json([PairInfo(one.base, one.quote) for one in (ONE, TWO)]),
            body_of(1, 1),
            body_of(2, 2),
        ]
        front.answers = {
            found: (200, sent, body) for found, sent, body in zip([None, ONE, TWO], headers, bodies, strict=True)
        }
        if expected is not None:
            assert open_feed(url).read().freshness == expected
        else:
            with pytest.raises(FeedError, match="it published during each of 5 rounds of requests"):
                open_feed(url).read()

    def test_a_pair_list_may_be_larger_than_any_book(self, front: Front, url: str, upstream: LiveIndex):
        """That of 100,000 pairs has 18 MB."""
        front.answers[None] = answer(wire.pair_list_to_json(upstream.current.pair_list()) + b" " * 18_000_000)
        assert spots(open_feed(url).read()) == {1: "1", 2: "2"}


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("raise RuntimeError", 1), ("sys.exit(os.fork() and os.wait()[1])", 0)]
)
def test_a_program_that_does_not_close_its_feed_can_end(stream_url: str, end: str, code: int):
    """Its thread does not run any more when Python closes the generator; nor does it in a forked process."""
    opened = "import os, sys; from market_index_feeds import open_feed; versions = open_feed(sys.argv[1]).versions()"
    done = subprocess.run(
        [sys.executable, "-c", f"{opened}\nnext(versions)\n{end}", stream_url],
        capture_output=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (code, [b"RuntimeError"] * code)
