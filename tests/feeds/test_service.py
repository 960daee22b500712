"""A feed of a running service: what other media do not have. The laws of all media are in `contract`."""

from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from threading import Event
from time import monotonic

import pytest

from market_index import Freshness, LiveIndex, PairNotFound, wire
from market_index.wire import format_time
from market_index_feeds import FeedError, open_feed
from market_index_feeds import service as module
from market_index_feeds.service import oldest
from tests.feeds.contract.medium import Reader
from tests.feeds.made_up import book, pair, spots
from tests.feeds.services import Answer, Front, sending, served
from tests.waiting import eventually, in_thread

ONE, TWO, THREE = pair(1), pair(2), pair(3)
NOW = datetime(2026, 11, 22, 4, 17, 3, 123000, tzinfo=UTC)


@pytest.fixture
def upstream() -> LiveIndex:
    """The live index of the service."""
    live = LiveIndex()
    live.update([book(1, 1), book(2, 2)], freshness=Freshness("slot 1", NOW))
    return live


@pytest.fixture
def front(upstream: LiveIndex) -> Front:
    return Front(upstream)


@pytest.fixture
def url(front: Front) -> Iterator[str]:
    with served(front) as url:
        yield url


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex()


def answer(body: bytes, **headers: str) -> Answer:
    return 200, {name.replace("_", "-"): value for name, value in headers.items()}, body


def body_of(number: int, spot: object) -> bytes:
    return wire.order_book_to_json(book(number, spot))


class TestRequests:
    def test_each_request_says_who_asks_and_what_is_known(self, front: Front, url: str, upstream: LiveIndex):
        fresh = {"Market-Index-As-Of": "slot 1", "Market-Index-Published-At": format_time(NOW)}
        front.answers[TWO] = 200, {"ETag": 'W/"weak"', **fresh}, body_of(2, 2)
        with Reader(open_feed(url)) as reader:
            reader.pull()
            assert [found for found, _ in front.requests] == [None, ONE, TWO]
            for _, headers in front.requests:
                assert headers["user-agent"].startswith("market-index/0.")
                assert (headers["accept-encoding"], "if-none-match" in headers) == ("gzip", False)
            front.requests.clear()
            front.answers[TWO] = (
                304,
                {"Market-Index-As-Of": "slot 1", "Market-Index-Published-At": format_time(NOW)},
                b"",
            )
            assert reader.pull() is reader.versions[0]
            tags = [headers["if-none-match"] for _, headers in front.requests]
            assert (len(set(tags)), tags[2]) == (3, 'W/"weak"')
            upstream.publish(book(1, 5))
            reader.pull()
            assert (spots(reader.index), len(reader.versions)) == ({1: "5", 2: "2"}, 2)

    @pytest.mark.parametrize("tag", ["", "bare", '"a b"', '"' + "a" * 300 + '"', '"\u00e9"'])
    def test_a_malformed_tag_is_not_sent_back(self, front: Front, url: str, tag: str):
        front.answers[ONE] = answer(body_of(1, 1), ETag=tag)
        with Reader(open_feed(url)) as reader:
            reader.pull()
            front.requests.clear()
            reader.pull()
            assert [headers.get("if-none-match") for found, headers in front.requests if found == ONE] == [None]

    def test_compressed_and_plain_responses_are_equal(self, front: Front, url: str):
        front.answers[ONE] = answer(gzip.compress(body_of(1, 7)), Content_Encoding="gzip")
        front.answers[TWO] = answer(body_of(2, 7), Content_Encoding="identity")
        assert spots(open_feed(url).read()) == {1: "7", 2: "7"}

    def test_a_prefix_is_part_of_the_base_url(self, front: Front, url: str):
        for base in (f"{url}/", url.replace("http", "HTTP")):
            assert len(open_feed(base).read()) == 2
        with pytest.raises(FeedError, match="there is no pair list below this URL"):
            open_feed(f"{url}/v1").read()

    def test_a_proxy_of_the_environment_is_not_used(self, url: str, monkeypatch: pytest.MonkeyPatch):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        assert len(open_feed(url).read()) == 2

    def test_keys_that_a_service_adds_are_ignored(self, front: Front, url: str):
        text = body_of(1, 1).replace(b'"spot"', b'"added":{"x":[1]},"spot"')
        front.answers[ONE] = answer(text)
        pairs = b'{"added":1,"pairs":[%b]}' % b",".join(
            b'{"base":"%b","quote":"ADA","last_spot":null,"more":2}' % str(one.base).encode() for one in (ONE, TWO)
        )
        front.answers[None] = answer(pairs)
        feed = open_feed(url)
        assert (spots(feed.read()), feed.rejected) == ({1: "1", 2: "2"}, 0)

    def test_one_book_is_one_request(self, front: Front, url: str):
        feed = open_feed(url)
        assert feed.read_order_book(TWO) == book(2, 2)
        assert [found for found, _ in front.requests] == [TWO]
        assert feed.version is not None
        assert feed.version.index.freshness == Freshness("slot 1", NOW)
        with pytest.raises(PairNotFound):
            open_feed(url).read_order_book(THREE)
        front.answers[TWO] = answer(body_of(1, 1))
        with pytest.raises(FeedError, match="must be the book of the requested pair, got that of"):
            open_feed(url).read_order_book(TWO)

    @pytest.mark.parametrize(
        "url",
        [
            "http://",
            "http://user:secret@host",
            "http://host/?secret",
            "http://host?",
            "http://host/#x",
            "http://host:0",
            "http://host:secret",
            "http://\u2100",
        ],
    )
    def test_a_name_that_is_no_base_url_is_refused_without_its_credentials(self, url: str):
        with pytest.raises(FeedError, match="must be the base URL of a service, such as http") as raised:
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
            (answer(b"no gzip", Content_Encoding="gzip"), "is not valid gzip"),
            (
                answer(b"", Content_Encoding="gzip, gzip"),
                "must be compressed with gzip or not at all, got ",
            ),
            (answer(b" " * 2000 + body_of(2, 2)), "must have at most 1000 bytes"),
            (answer(gzip.compress(b" " * 10**7), Content_Encoding="gzip"), "must have at most 1000 bytes"),
            ((302, {"Location": "/elsewhere"}, b""), "has status 302"),
            ((500, {}, b"oops\n"), r"has status 500: 'oops\\n'"),
            ((304, {}, b""), "has status 304"),
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
            assert (spots(version.index), version.index.as_of) == ({1: "1", 2: "2"}, None)
            assert (version.invalid, reader.feed.rejected, reader.feed.problem) == (frozenset({TWO}), 1, None)
            assert f"the order book of {TWO} rejected: " in caplog.text
            assert reason.replace("\\\\", "\\") in caplog.text
            front.answers.clear()
            reader.pull()
            assert (reader.index.as_of, reader.versions[-1].invalid) == ("slot 1", frozenset())

    @pytest.mark.parametrize(
        ("found", "reason"),
        [
            (answer(b'{"pairs": 7}'), "invalid pair list: "),
            (answer(b" " * 3000), "must have at most 2000 bytes"),
            ((503, {}, b"busy"), "has status 503: 'busy'"),
            ((500, {}, b""), "has status 500"),
            ((404, {}, b""), "there is no pair list below this URL"),
        ],
    )
    def test_without_a_valid_list_the_service_cannot_be_read(
        self, front: Front, url: str, found: Answer, reason: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(module, "MAX_LIST_BYTES", 2000)
        with Reader(open_feed(url)) as reader:
            before = reader.pull()
            front.answers[None] = found
            reader.until(lambda _: reader.feed.problem is not None)
            assert reason in str(reader.feed.problem)
            assert reader.pull() is before
            front.answers.clear()
            reader.until(lambda _: reader.feed.problem is None)
        front.answers[None] = found
        with pytest.raises(FeedError, match="cannot be read: "):
            open_feed(url).read()

    @pytest.mark.parametrize(
        "sent",
        [
            b"",
            b"rubbish\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
        ],
    )
    def test_what_is_not_a_whole_response_is_an_error(self, sent: bytes):
        with sending(lambda one: one.sendall(sent)) as url, pytest.raises(FeedError, match=r"cannot be read: ."):
            open_feed(url).read()

    @pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"])
    @pytest.mark.parametrize("piece", [b"x", b"HTTP/1.1 100 Continue\r\n\r\n"])
    def test_a_response_that_never_ends_is_an_error(self, head: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch):
        """Each byte arrives in time, but the whole exchange does not."""
        monkeypatch.setattr(module, "EXCHANGE_SECONDS", 0.2)
        pause = Event()

        def drip(connection: socket.socket) -> None:
            connection.sendall(head)
            while True:
                connection.sendall(piece)
                pause.wait(0.01)

        with sending(drip) as url, pytest.raises(FeedError, match=r"cannot be read: "):
            open_feed(url).read()

    def test_a_feed_that_waits_for_a_response_can_be_closed(self, live: LiveIndex):
        accepted, released = Event(), Event()
        with sending(lambda _: accepted.set() or released.wait()) as url:  # type: ignore[func-returns-value,arg-type]  # both are called
            feed = open_feed(url)
            thread = in_thread(lambda: (accepted.wait(), feed.close()))  # type: ignore[func-returns-value]  # both are called
            with pytest.raises(FeedError, match="closed while it was loaded"):
                feed.start(live)
            thread.join()
            released.set()

    def test_no_credentials_and_no_request_are_logged(self, url: str, caplog: pytest.LogCaptureFixture):
        with caplog.at_level(logging.INFO):
            open_feed(url).read()
        assert caplog.text == ""


class TestRounds:
    def test_a_pair_that_vanishes_between_list_and_book_is_not_tracked(
        self, front: Front, url: str, upstream: LiveIndex
    ):
        def retract() -> None:
            upstream.retract(TWO)

        front.answers[ONE] = retract  # while the books are read
        with Reader(open_feed(url)) as reader:
            version = reader.pull()
            assert (version.invalid, reader.feed.rejected) == (frozenset(), 0)
            assert spots(version.index).keys() - {2} == {1}
            reader.pull()
            assert spots(reader.index) == {1: "1"}

    def test_a_listed_pair_without_a_book_is_invalid(self, front: Front, url: str):
        with Reader(open_feed(url)) as reader:
            reader.pull()
            front.answers[TWO] = 404, {}, b"{}"
            reader.pull()
            reader.pull()
            assert (spots(reader.index), reader.index.as_of) == ({1: "1", 2: "2"}, None)
            assert (reader.versions[-1].invalid, reader.feed.rejected) == (frozenset({TWO}), 1)
            front.answers.clear()
            reader.pull()
            assert (reader.index.as_of, reader.versions[-1].invalid) == ("slot 1", frozenset())

    def test_a_version_has_the_pairs_of_one_list(self, front: Front, url: str, upstream: LiveIndex):
        def publish() -> None:
            upstream.publish(book(3, 3))

        front.answers[ONE] = publish
        with Reader(open_feed(url)) as reader:
            assert spots(reader.pull().index) == {1: "1", 2: "2"}
            assert spots(reader.pull().index) == {1: "1", 2: "2", 3: "3"}

    def test_no_version_is_newer_than_its_oldest_book(self, front: Front, url: str, upstream: LiveIndex):
        steps = iter(range(2, 100))

        def publish() -> None:
            step = next(steps)
            freshness = Freshness(f"slot {step}", NOW + timedelta(seconds=step))
            upstream.update([book(number, step) for number in (1, 2)], freshness=freshness)

        front.answers[ONE] = front.answers[TWO] = publish
        with Reader(open_feed(url)) as reader:
            for _ in range(20):
                version = reader.pull()
                as_of = int((version.index.as_of or "slot 0").removeprefix("slot "))
                assert as_of <= min(int(one.spot or 0) for one in version.index.values())

    def test_a_round_that_fails_is_continued(self, front: Front, url: str, upstream: LiveIndex):
        upstream.publish(*[book(number, 1) for number in range(3, 60)])
        with Reader(open_feed(url)) as reader:
            before = reader.pull()
            front.requests.clear()
            upstream.publish(*[book(number, 2) for number in range(1, 60)])
            front.answers[pair(40)] = 503, {}, b""
            reader.until(lambda _: reader.feed.problem is not None)
            assert reader.versions == [before]
            received = {found for found, _ in front.requests}
            assert ONE in received
            front.requests.clear()
            front.answers.clear()
            reader.until(lambda _: reader.feed.problem is None)
            assert ONE not in {found for found, _ in front.requests}
            assert spots(reader.index) == dict.fromkeys(range(1, 60), "2")

    def test_a_pause_that_a_service_asks_for_ends_the_round(
        self, front: Front, url: str, monkeypatch: pytest.MonkeyPatch
    ):
        now = [monotonic()]
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
        with Reader(open_feed(url)) as reader:
            reader.pull()
            front.answers[TWO] = 429, {"Retry-After": "3600"}, b""
            reader.until(lambda _: reader.feed.problem is not None)
            front.answers.clear()
            front.requests.clear()
            for _ in range(5):
                reader.pull()
            assert (front.requests, "has status 429" in str(reader.feed.problem)) == ([], True)
            now[0] += module.MAX_RETRY_SECONDS
            reader.until(lambda _: reader.feed.problem is None)

    def test_the_first_round_continues_after_each_pause(
        self, front: Front, url: str, upstream: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        upstream.publish(*[book(number, 1) for number in range(3, 60)])
        overloaded = set[int]()

        def overload(number: int) -> Answer | None:
            is_new = number not in overloaded
            overloaded.add(number)
            return (429, {"Retry-After": "1"}, b"") if is_new else None

        seconds = count(step=2)
        monkeypatch.setattr(module, "monotonic", lambda: next(seconds))
        front.answers = {pair(number): partial(overload, number) for number in range(5, 60, 9)}
        with Reader(open_feed(url)) as reader:
            reader.pull()
            assert (len(reader.index), reader.feed.retries, len(overloaded)) == (59, 0, 7)


@pytest.mark.parametrize(
    ("seen", "before", "expected"),
    [
        ([("a", 1), ("a", 1)], None, ("a", 1)),
        ([(None, None)], None, (None, None)),
        ([("a", 1), ("b", 2)], None, ("a", 1)),
        ([("a", 1), ("b", 2)], 1, ("a", 1)),
        ([("a", 1), ("b", 2)], 2, (None, 1)),
        ([("a", 1), ("b", 1)], None, (None, 1)),
        ([("a", 1), (None, 2)], None, (None, 1)),
        ([("a", 1), ("b", None)], None, (None, None)),
    ],
)
def test_the_freshness_of_a_round_is_that_of_its_oldest_response(
    seen: list[tuple[str | None, int | None]], before: int | None, expected: tuple[str | None, int | None]
):
    assert oldest([_at(*one) for one in seen], _at("z", before)) == _at(*expected)


def _at(as_of: str | None, seconds: int | None) -> Freshness:
    return Freshness(as_of, None if seconds is None else NOW + timedelta(seconds=seconds))


def test_repeated_or_invalid_headers_are_not_known(front: Front, upstream: LiveIndex):
    async def repeating(scope: object, receive: object, send: object) -> None:
        async def sent(message: dict[str, object]) -> None:
            headers = message.get("headers")
            if isinstance(headers, list):
                message["headers"] = [*headers, (b"market-index-as-of", b"slot 9")]
            await send(message)  # type: ignore[operator]  # it is that of ASGI

        await front(scope, receive, sent)

    with served(repeating) as url:
        assert open_feed(url).read().freshness == Freshness(None, NOW)
    front.answers[ONE] = answer(body_of(1, 1), Market_Index_As_Of="slot 1", Market_Index_Published_At="late")
    with served(front) as url:
        assert open_feed(url).read().freshness == Freshness(None, None)


def test_a_tls_service_must_have_a_valid_certificate(live: LiveIndex):
    with sending(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")) as url, pytest.raises(FeedError):
        open_feed(url.replace("http", "https")).start(live)


def test_a_service_that_ends_keeps_its_books(front: Front, upstream: LiveIndex, live: LiveIndex):
    with served(front) as url:
        feed = open_feed(url)
        feed.start(live)
    eventually(lambda: feed.problem is not None and "cannot be read: " in feed.problem)
    assert spots(live) == {1: "1", 2: "2"}
    feed.close()
