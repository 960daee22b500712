"""A running service as a feed, through a real uvicorn on a real socket."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from market_index import Freshness, LiveIndex, MarketIndex, PairNotFound, strategies, wire
from market_index.wire import format_time
from market_index_feeds import Feed, FeedError, open_feed
from market_index_feeds.coverage import Coverage
from market_index_feeds.http import source
from market_index_http import create_app
from tests.market_index_feeds.http.services import BOOK, LIST, answering, polled, says
from tests.market_index_feeds.made_up import book, pair, spots
from tests.service import served
from tests.waiting import WITHOUT_SHRINKING, eventually

TIME = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture(scope="module")
def served_index() -> Iterator[tuple[LiveIndex, str]]:
    """An index, and the base URL of the service that serves it."""
    served_index = LiveIndex()
    with served(create_app(served_index)) as one:
        yield served_index, f"http://127.0.0.1:{one.port}"


@settings(max_examples=20, phases=WITHOUT_SHRINKING)
@given(index=strategies.market_indexes())
def test_read_books_equal_the_served_ones(served_index: tuple[LiveIndex, str], index: MarketIndex):
    live, url = served_index
    live.update(index.values(), live.current.keys() - index.keys())
    assert open_feed(url).read() == index
    for wanted in index:
        assert open_feed(f"{url}/").read_order_book(wanted) == index[wanted]


def test_changes_go_live_and_unchanged_books_are_not_sent_again(feed: Feed, upstream: LiveIndex, live: LiveIndex):
    kept = live.current.order_book(pair(1))
    upstream.update([book(2, 9), book(4, 4)], [pair(3)])
    eventually(lambda: spots(live) == {1: "1", 2: "9", 4: "4"})
    assert live.current.order_book(pair(1)) is kept
    assert feed.books == 5
    upstream.publish(book(3, 3))
    eventually(lambda: spots(live) == {1: "1", 2: "9", 3: "3", 4: "4"})
    eventually(lambda: feed.age < 1)


def test_the_base_url_can_have_a_path(upstream: LiveIndex):
    with served(Starlette(routes=[Mount("/api/v1", create_app(upstream))])) as one:
        reported: list[tuple[int, int]] = []
        index = open_feed(f"http://127.0.0.1:{one.port}/api/v1").read(
            lambda done, total: reported.append((done, total))
        )
        assert spots(index) == {1: "1", 2: "2", 3: "3"}
        assert len(reported) > 3


def test_a_service_that_disappears_keeps_the_last_valid_index(
    upstream: LiveIndex, live: LiveIndex, logged: pytest.LogCaptureFixture
):
    with served(create_app(upstream)) as one:
        feed = polled(f"http://127.0.0.1:{one.port}")
        feed.start(live)
    with feed:
        eventually(lambda: "cannot be read: Connection refused; keeping its 3 pairs" in logged.text)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        age = feed.age
        eventually(lambda: feed.age > age)


def test_a_pair_that_is_dropped_during_a_round_is_skipped(logged: pytest.LogCaptureFixture):
    index = MarketIndex([book(1, 1)])
    answers = {
        LIST: Response(wire.pair_list_to_json(index.pair_list())),
        BOOK: Response(wire.error_to_json("not found"), 404),
    }
    with served(answering(answers)) as one:
        assert spots(open_feed(f"http://127.0.0.1:{one.port}").read()) == {}
        with pytest.raises(PairNotFound, match=str(pair(1))):
            open_feed(f"http://127.0.0.1:{one.port}").read_order_book(pair(1))


@pytest.mark.decision(24)
def test_keys_that_a_service_has_added_are_ignored():
    more = b',"sequence":{"number":7}}'
    listed = wire.pair_list_to_json(MarketIndex([book(1, 1)]).pair_list())
    answers = {
        LIST: Response(listed[:-3] + more + b"]" + more),
        BOOK: Response(wire.order_book_to_json(book(1, 1))[:-1] + more),
    }
    with served(answering(answers)) as one:
        assert spots(open_feed(f"http://127.0.0.1:{one.port}").read()) == {1: "1"}


def test_an_invalid_book_keeps_the_last_valid_one(live: LiveIndex, logged: pytest.LogCaptureFixture):
    good = wire.order_book_to_json(book(1, 1))
    answers = {LIST: Response(wire.pair_list_to_json(MarketIndex([book(1)]).pair_list())), BOOK: Response(good)}
    app = answering(answers)
    with served(app) as one, polled(f"http://127.0.0.1:{one.port}") as feed:
        feed.start(live)
        for bad, reason in (
            (b"nonsense", "must be JSON, but is not at character 0"),
            (wire.order_book_to_json(book(2)), "must be the book of the requested pair"),
        ):
            before = spots(live)
            answers[BOOK] = Response(bad)
            eventually(partial(says, logged, f"the order book of {pair(1)} rejected: {reason}"))
            asked = app.state.asked
            eventually(lambda asked=asked: app.state.asked > asked + 4)  # type: ignore[misc]  # a default has no type
            assert spots(live) == before
            with pytest.raises(FeedError, match=reason):
                open_feed(feed.source).read_order_book(pair(1))
            answers[BOOK] = Response(wire.order_book_to_json(book(1, feed.rejected + 1)))
            eventually(lambda: spots(live) == {1: str(feed.rejected + 1)})
        assert feed.rejected == 2


def test_a_book_that_is_too_large_affects_no_other_pair(live: LiveIndex, logged: pytest.LogCaptureFixture):
    text = wire.order_book_to_json(book(1, 1))
    large = {str(pair(1).base): text + b" ", str(pair(2).base): wire.order_book_to_json(book(2, 2))}

    async def answer(request: Request) -> Response:
        if request.url.path == LIST:
            return Response(wire.pair_list_to_json(MarketIndex([book(1), book(2)]).pair_list()))
        return Response(large[request.query_params["base"]])

    service = served(Starlette(routes=[Route("/{path:path}", answer)]))
    with service as one, polled(f"http://127.0.0.1:{one.port}", book_bytes=len(text)) as feed:
        feed.start(live)
        assert (spots(live), feed.current_rejections, feed.problem) == ({2: "2"}, 1, None)
        assert re.search(
            rf"the order book of {pair(1)} rejected: response to .* must have at most {len(text)} bytes", logged.text
        )
        with pytest.raises(FeedError, match="must have at most"):
            polled(feed.source, book_bytes=len(text)).read_order_book(pair(1))
        large[str(pair(1).base)] = text
        eventually(lambda: (spots(live), feed.current_rejections) == ({1: "1", 2: "2"}, 0))


def test_a_pair_stays_rejected_while_requests_of_its_book_fail(live: LiveIndex, logged: pytest.LogCaptureFixture):
    first = str(pair(1).base)
    answers = {first: Response(b"nonsense"), str(pair(2).base): Response(wire.order_book_to_json(book(2, 2)))}
    asked: list[str] = []

    async def answer(request: Request) -> Response:
        if request.url.path == LIST:
            return Response(wire.pair_list_to_json(MarketIndex([book(1), book(2)]).pair_list()))
        asked.append(request.query_params["base"])
        return answers[asked[-1]]

    service = served(Starlette(routes=[Route("/{path:path}", answer)]))
    with service as one, polled(f"http://127.0.0.1:{one.port}") as feed:
        feed.start(live)
        assert (spots(live), feed.current_rejections) == ({2: "2"}, 1)
        answers[first] = Response(b"", 500)
        before = asked.count(first)
        eventually(lambda: asked.count(first) > before + 3)
        assert (feed.current_rejections, feed.content.coverage.invalid) == (1, frozenset([pair(1)]))
        answers[first] = Response(wire.order_book_to_json(book(1, 1)))
        eventually(lambda: (spots(live), feed.current_rejections) == ({1: "1", 2: "2"}, 0))


def test_a_listed_pair_without_a_book_is_rejected_from_the_second_time_on(
    live: LiveIndex, logged: pytest.LogCaptureFixture
):
    listed = MarketIndex([book(1), book(2), book(3)])
    answers = {str(pair(number).base): Response(wire.order_book_to_json(book(number, number))) for number in (1, 2, 3)}
    missing = Response(b"no", 404)
    asked: list[str] = []

    async def answer(request: Request) -> Response:
        nonlocal listed
        if request.url.path == LIST:
            return Response(wire.pair_list_to_json(listed.pair_list()))
        asked.append(request.query_params["base"])
        if answers[asked[-1]] is missing and asked[-1] == str(pair(3).base):
            listed = listed.without(pair(3))
        return answers[asked[-1]]

    service = served(Starlette(routes=[Route("/{path:path}", answer)]))
    with service as one, polled(f"http://127.0.0.1:{one.port}") as feed:
        feed.start(live)
        # The service drops a pair, which may happen at any time.
        answers[str(pair(3).base)] = missing
        eventually(lambda: spots(live) == {1: "1", 2: "2"})
        assert feed.rejected == 0
        answers[str(pair(1).base)] = missing
        eventually(lambda: (feed.current_rejections, feed.retained_age is None) == (1, False))
        reason = "not found, although the pair list contains the pair"
        eventually(partial(says, logged, f"the order book of {pair(1)} rejected: {reason}"))
        before = asked.count(str(pair(1).base))
        eventually(lambda: asked.count(str(pair(1).base)) > before + 3)
        assert (feed.current_rejections, feed.rejected, spots(live)) == (1, 1, {1: "1", 2: "2"})
        answers[str(pair(1).base)] = Response(wire.order_book_to_json(book(1, 5)))
        eventually(lambda: (spots(live), feed.current_rejections) == ({1: "5", 2: "2"}, 0))


def test_a_bad_book_hides_the_as_of_and_blocks_no_retraction(
    upstream: LiveIndex, live: LiveIndex, logged: pytest.LogCaptureFixture
):
    app = create_app(upstream)
    spoiled = {2}

    async def sometimes(scope: Any, receive: Any, send: Any) -> None:
        target = scope["query_string"]
        is_spoiled = any(str(pair(number).base).replace(":", "%3A").encode() in target for number in spoiled)
        bad = Response(b"{}", headers={"Market-Index-Published-At": format_time(TIME)})
        await (bad if is_spoiled else app)(scope, receive, send)

    upstream.update([], freshness=Freshness("slot 1", TIME))
    with served(sometimes) as one, polled(f"http://127.0.0.1:{one.port}") as feed:
        feed.start(live)
        assert (spots(live), live.current.freshness) == ({1: "1", 3: "3"}, Freshness(None, TIME))
        assert feed.content.coverage == Coverage(invalid=frozenset([pair(2)]), is_complete=True)
        # One pair leaves the list, another one is new.
        upstream.update([book(4, 4)], [pair(3)], Freshness("slot 2", TIME))
        eventually(lambda: spots(live) == {1: "1", 4: "4"})
        assert (live.current.freshness, feed.problem, feed.rejected) == (Freshness(None, TIME), None, 1)
        spoiled.clear()
        eventually(lambda: spots(live) == {1: "1", 2: "2", 4: "4"})
        eventually(lambda: (live.current.as_of, feed.content.coverage.invalid) == ("slot 2", frozenset()))
        spoiled.add(4)
        upstream.update([book(4, 5)], freshness=Freshness("slot 3", TIME))
        eventually(lambda: feed.content.coverage.invalid == {pair(4)})
        assert (spots(live)[4], live.current.freshness) == ("4", Freshness(None, TIME))
        # The bad one itself leaves the list.
        upstream.retract(pair(4))
        eventually(lambda: (spots(live), live.current.as_of) == ({1: "1", 2: "2"}, "slot 3"))
        assert feed.current_rejections == 0


def test_a_restarted_service_that_lists_fewer_pairs_retracts_the_others(
    upstream: LiveIndex, feed: Feed, live: LiveIndex
):
    upstream.show(MarketIndex())
    eventually(lambda: (spots(live), feed.problem) == ({}, None))
    upstream.publish(book(2, 9))
    eventually(lambda: spots(live) == {2: "9"})
    assert feed.content.coverage == Coverage(retracted=frozenset([pair(1), pair(3)]), is_complete=True)


def test_a_response_of_304_ends_a_rejection(upstream: LiveIndex, live: LiveIndex):
    app = create_app(upstream)
    spoiled: list[bool] = []

    async def sometimes(scope: Any, receive: Any, send: Any) -> None:
        is_spoiled = spoiled and scope["path"] == BOOK
        await (Response(b"{}") if is_spoiled else app)(scope, receive, send)

    with served(sometimes) as one, polled(f"http://127.0.0.1:{one.port}") as feed:
        feed.start(live)
        spoiled.append(True)
        eventually(lambda: (feed.current_rejections, feed.retained_age is None) == (3, False))
        spoiled.clear()
        eventually(lambda: (feed.current_rejections, feed.retained_age is None) == (0, True))
        assert feed.books == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Response(b"nope", 500), f"response to {LIST} has status 500: 'nope'"),
        (Response(b"", 302, {"Location": "/"}), f"response to {LIST} has status 302: ''"),
        (Response(b"", 304), f"response to {LIST} has status 304: ''"),
        (Response(b"no", 404), f"there is no pair list below this URL: response to {LIST} has status 404: 'no'"),
        (Response(b"{}"), "invalid pair list: pairs: missing"),
        (Response(b"x" * 1001), f"response to {LIST} must have at most 1000 bytes, got more"),
    ],
)
def test_an_invalid_pair_list_is_one_clear_error(answer: Response, reason: str, live: LiveIndex):
    with served(answering({LIST: answer})) as one, pytest.raises(FeedError) as refused:
        polled(f"http://127.0.0.1:{one.port}", list_bytes=1000).start(live)
    assert str(refused.value) == f"http://127.0.0.1:{one.port} cannot be read: {reason}"


def test_a_service_sends_compressed_bodies_and_their_entity_tags_are_revalidated(live: LiveIndex):
    app = create_app(LiveIndex(book(number, number) for number in range(1, 41)))
    sent: list[tuple[int, bytes | None]] = []

    async def recording(scope: Any, receive: Any, send: Any) -> None:
        async def record(message: Any) -> None:
            if message["type"] == "http.response.start" and scope.get("path") == LIST:
                sent.append((message["status"], dict(message["headers"]).get(b"content-encoding")))
            await send(message)

        await app(scope, receive, record)

    with served(recording) as one, polled(f"http://127.0.0.1:{one.port}", waiting_pairs=0) as feed:
        feed.start(live)
        assert len(live.current) == 40
        eventually(lambda: len(sent) > 2)
    assert sent[0] == (200, b"gzip")
    assert {status for status, _ in sent[1:]} == {304}


def test_a_failed_request_of_one_pair_affects_no_other_pair(
    upstream: LiveIndex, live: LiveIndex, logged: pytest.LogCaptureFixture
):
    app = create_app(upstream)
    failing: list[bool] = []

    async def sometimes(scope: Any, receive: Any, send: Any) -> None:
        if failing and str(pair(2).base).replace(":", "%3A").encode() in scope["query_string"]:
            await Response(b"not now", 503)(scope, receive, send)
        else:
            await app(scope, receive, send)

    with served(sometimes) as one, polled(f"http://127.0.0.1:{one.port}") as feed:
        feed.start(live)
        failing.append(True)
        eventually(lambda: "503: 'not now'; keeping its 3 pairs" in logged.text)
        upstream.update([book(1, 9), book(2, 9), book(5, 5)], [pair(3)])
        eventually(lambda: spots(live) == {1: "9", 2: "2", 5: "5"})
        age = feed.age
        eventually(lambda: feed.age > age)
        failing.clear()
        eventually(lambda: spots(live) == {1: "9", 2: "9", 5: "5"})
        eventually(lambda: feed.age < age)
        failing.append(True)
        with pytest.raises(FeedError, match="503: 'not now'"):
            open_feed(feed.source).read(lambda *_: None)
        with pytest.raises(FeedError, match="503: 'not now'"):
            open_feed(feed.source).start(untouched := LiveIndex())
        assert len(untouched.current) == 0


def test_many_pairs_are_read():
    index = MarketIndex(book(number, number) for number in range(1, 41))
    with served(create_app(LiveIndex(index.values()))) as one:
        assert open_feed(f"http://127.0.0.1:{one.port}").read() == index


def test_a_list_of_too_many_pairs_is_rejected(upstream: LiveIndex, live: LiveIndex):
    with (
        served(create_app(upstream)) as one,
        pytest.raises(FeedError, match="pair list must have at most 2 pairs, got 3"),
    ):
        polled(f"http://127.0.0.1:{one.port}", pairs=2).start(live)


def test_a_round_ends_in_time_and_the_next_one_starts_with_the_other_pairs(
    upstream: LiveIndex, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
):
    monkeypatch.setattr(source, "monotonic", count().__next__)
    with served(create_app(upstream)) as one, polled(f"http://127.0.0.1:{one.port}", round_seconds=3) as feed:
        feed.start(live)
        for spot in range(4, 9):
            upstream.update([book(number, spot) for number in (1, 2, 3)])
            eventually(lambda spot=spot: spots(live) == dict.fromkeys((1, 2, 3), str(spot)))  # type: ignore[misc]  # a default has no type
        assert "only 2 of 3 pairs were requested in 3 seconds" in logged.text
        upstream.retract(pair(3))
        eventually(lambda: "recovered" in logged.text)


def test_a_service_without_pairs_is_complete(live: LiveIndex):
    with served(create_app(LiveIndex())) as one, polled(f"http://127.0.0.1:{one.port}") as feed:
        feed.start(live)
        assert (feed.problem, feed.content.coverage.names_all_pairs) == (None, True)
