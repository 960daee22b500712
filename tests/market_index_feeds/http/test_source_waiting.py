"""A feed whose requests wait for changes of a service, and its return to polling."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from threading import Event
from time import monotonic
from typing import Any
from urllib.parse import parse_qs

import pytest
from starlette.responses import Response

from market_index import Freshness, LiveIndex, MarketIndex, wire
from market_index_feeds import Feed
from market_index_feeds.http.limits import PollingLimits
from market_index_feeds.http.source import open_http_source
from market_index_feeds.medium import Update
from market_index_http import create_app
from tests.market_index_feeds.http.services import LIST, polled
from tests.market_index_feeds.made_up import book, pair, spots
from tests.service import Restartable, served
from tests.waiting import eventually

NEVER = 3600.0
"""An interval that no test reaches."""


class Recorded:
    """An app that records its requests, and whether they may wait. `answer` may answer one in its place."""

    def __init__(self, live: LiveIndex, max_wait: int = 60) -> None:
        self._app = create_app(live, max_wait=max_wait)
        self.end_waits = self._app.end_waits
        self.plain: list[str] = []
        self.waiting: list[str] = []
        self.answer: Callable[[str, bool], Response | None] = lambda _, __: None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            bases = parse_qs(scope["query_string"].decode()).get("base", [LIST])
            may_wait = any(name == b"prefer" for name, _ in scope["headers"])
            # Before it is recorded: a test that has seen the request may then change the answer of the next one.
            response = self.answer(bases[0], may_wait)
            (self.waiting if may_wait else self.plain).append(bases[0])
            if response is not None:
                return await response(scope, receive, send)
        await self._app(scope, receive, send)
        return None


class Never(Response):
    """A response that is not sent before the client disconnects."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        del scope, send
        while (await receive())["type"] != "http.disconnect":
            pass


def name(number: int) -> str:
    return str(pair(number).base)


@pytest.fixture
def app(upstream: LiveIndex) -> Recorded:
    return Recorded(upstream)


@contextmanager
def following(app: Recorded, live: LiveIndex, **limits: Any) -> Iterator[Feed]:
    """Start a feed of an app. After its first round only requests that wait find changes, unless `limits` differ."""
    with served(app) as one, polled(f"http://127.0.0.1:{one.port}", **{"poll_seconds": NEVER, **limits}) as feed:
        feed.start(live)
        yield feed


def is_waiting(app: Recorded, *numbers: int) -> bool:
    return {LIST, *map(name, numbers)} <= set(app.waiting)


def test_changes_of_books_and_of_pairs_are_live_without_a_further_round(
    app: Recorded, upstream: LiveIndex, live: LiveIndex
):
    with following(app, live) as feed:
        eventually(lambda: is_waiting(app, 1, 2, 3))
        upstream.publish(book(2, 9))
        eventually(lambda: spots(live) == {1: "1", 2: "9", 3: "3"})
        upstream.publish(book(2, 10), book(1, 10))
        eventually(lambda: spots(live) == {1: "10", 2: "10", 3: "3"})
        assert sorted(app.plain) == sorted([LIST, name(1), name(2), name(3)])
        # The list changes, and a round follows immediately.
        upstream.update([book(4, 4)], [pair(3)])
        eventually(lambda: spots(live) == {1: "10", 2: "10", 4: "4"})
        upstream.retract(pair(4))
        eventually(lambda: spots(live) == {1: "10", 2: "10"})
        assert (feed.problem, feed.rejected) == (None, 0)


def test_a_book_that_is_not_found_is_noticed_even_if_the_list_is_not_answered(
    app: Recorded, upstream: LiveIndex, live: LiveIndex
):
    app.answer = lambda content, may_wait: Never() if content == LIST and may_wait else None
    with following(app, live, exchange_seconds=NEVER) as feed:
        eventually(lambda: is_waiting(app, 1, 2, 3))
        upstream.retract(pair(2))
        eventually(lambda: spots(live) == {1: "1", 3: "3"})
        assert feed.rejected == 0


def test_while_requests_wait_a_round_requests_only_the_list(app: Recorded, upstream: LiveIndex, live: LiveIndex):
    upstream.update((), freshness=Freshness("slot 1"))
    stop = Event()
    with served(app) as one:
        source = open_http_source(f"http://127.0.0.1:{one.port}", PollingLimits(poll_seconds=0.01))
        updates = source.updates(stop, None)
        assert len(next(updates).books) == 3
        # Each check is an update, so the feed is healthy as long as the service answers.
        assert list(islice(updates, 20)) == [Update()] * 20
        stop.set()
        assert list(updates) == []
        updates.close()
    assert sorted(app.plain) == sorted([name(1), name(2), name(3), *[LIST] * 21])
    assert sorted(app.waiting) == sorted([LIST, name(1), name(2), name(3)])


def test_a_freshness_that_changes_alone_is_live_after_a_round(app: Recorded, upstream: LiveIndex, live: LiveIndex):
    with following(app, live, poll_seconds=0.01):
        eventually(lambda: is_waiting(app, 1, 2, 3))
        upstream.update((), freshness=Freshness("slot 2"))
        eventually(lambda: live.current.as_of == "slot 2")
        assert app.waiting.count(name(1)) == 1, "the round does not end the wait"


def test_a_book_that_arrives_has_no_later_freshness_than_the_other_books(
    app: Recorded, upstream: LiveIndex, live: LiveIndex
):
    upstream.update((), freshness=Freshness("slot 1"))
    with following(app, live):
        eventually(lambda: is_waiting(app, 1, 2, 3))
        upstream.update([book(2, 9)], freshness=Freshness("slot 2"))
        eventually(lambda: spots(live)[2] == "9")
        assert live.current.as_of is None, "without publish times, it is not known which freshness is earlier"


def test_a_service_that_lets_no_request_wait_is_polled_and_asked_again_later(upstream: LiveIndex, live: LiveIndex):
    app = Recorded(upstream, max_wait=0)
    with following(app, live, poll_seconds=0.01, without_waits_seconds=NEVER):
        eventually(lambda: app.plain.count(name(3)) > 10)
        upstream.publish(book(2, 9))
        eventually(lambda: spots(live)[2] == "9")
        assert sorted(app.waiting) == sorted([LIST, name(1), name(2), name(3)])
    with following(app, live, poll_seconds=0.01, without_waits_seconds=0.01):
        eventually(lambda: app.waiting.count(LIST) > 5)
        before = app.plain.count(name(1))
        eventually(lambda: app.plain.count(name(1)) > before)


def test_a_service_with_more_pairs_is_polled(app: Recorded, upstream: LiveIndex, live: LiveIndex):
    with following(app, live, poll_seconds=0.01, waiting_pairs=3):
        eventually(lambda: is_waiting(app, 1, 2, 3))
        upstream.publish(book(4, 4))
        eventually(lambda: spots(live).get(4) == "4")
        asked = app.plain.count(name(4))
        eventually(lambda: app.plain.count(name(4)) > asked + 5)
        assert name(4) not in app.waiting
        upstream.retract(pair(4))
        waiting = len(app.waiting)
        eventually(lambda: len(app.waiting) > waiting)


def test_a_service_without_entity_tags_is_polled(app: Recorded, upstream: LiveIndex, live: LiveIndex):
    app.answer = lambda content, _: Response(wire.order_book_to_json(book(3, 3))) if content == name(3) else None
    with following(app, live, poll_seconds=0.01):
        eventually(lambda: app.plain.count(name(3)) > 5)
        assert app.waiting == []


@pytest.mark.parametrize(
    "answer",
    [
        Response(b"not now", 503),
        Response(b"half", headers={"Content-Length": "100"}),
        Response(b"x" * 10_001),
        Never(),
    ],
    ids=["503", "half", "too large", "none"],
)
def test_a_failed_wait_is_no_problem_and_the_service_is_polled(
    app: Recorded, upstream: LiveIndex, live: LiveIndex, answer: Response, logged: pytest.LogCaptureFixture
):
    app.answer = lambda content, may_wait: answer if may_wait and content == name(2) else None
    with following(
        app, live, poll_seconds=0.01, book_bytes=10_000, exchange_seconds=1, without_waits_seconds=NEVER
    ) as feed:
        eventually(lambda: app.plain.count(name(1)) > 10)
        upstream.publish(book(2, 9))
        eventually(lambda: spots(live)[2] == "9")
        # On a busy machine an ordinary exchange may take longer than a second, too.
        eventually(lambda: feed.problem is None)
        assert (feed.rejected, app.waiting.count(name(1))) == (0, 1)


def test_an_invalid_book_that_arrives_is_rejected_and_polled_until_it_is_valid(
    app: Recorded, upstream: LiveIndex, live: LiveIndex, logged: pytest.LogCaptureFixture
):
    with following(app, live, poll_seconds=0.01) as feed:
        eventually(lambda: is_waiting(app, 1, 2, 3))
        is_spoiled = Event()

        def spoil_next_wait(content: str, may_wait: bool) -> Response | None:
            if content == name(2) and may_wait:
                is_spoiled.set()
            return Response(b"nonsense") if content == name(2) and is_spoiled.is_set() else None

        app.answer = spoil_next_wait
        upstream.publish(book(2, 9))  # it arrives with the request that waits, or in a round
        # A rejection is counted before the change of the same update is visible.
        eventually(lambda: (feed.current_rejections, spots(live)) == (1, {1: "1", 2: "9", 3: "3"}))
        waiting, asked = len(app.waiting), app.plain.count(name(2))
        eventually(lambda: app.plain.count(name(2)) > asked + 5)
        assert len(app.waiting) <= waiting + 4, "requests wait although a book is rejected"
        app.answer = lambda _, __: None
        upstream.publish(book(2, 10))
        eventually(lambda: spots(live) == {1: "1", 2: "10", 3: "3"})
        waiting = app.waiting.count(name(1))
        eventually(lambda: (app.waiting.count(name(1)) > waiting, feed.current_rejections) == (True, 0))


def test_an_invalid_list_that_arrives_is_a_problem_as_in_a_round(
    app: Recorded, upstream: LiveIndex, live: LiveIndex, logged: pytest.LogCaptureFixture
):
    app.answer = lambda content, may_wait: Response(b"{}") if content == LIST and may_wait else None
    with following(app, live):
        eventually(lambda: "cannot be read: invalid pair list: pairs: missing; keeping its 3 pairs" in logged.text)


def test_only_spots_that_change_in_the_list_cause_no_round(app: Recorded, upstream: LiveIndex, live: LiveIndex):
    """A service may list a spot before it serves the book."""
    listed = MarketIndex([book(1, 5), book(2, 5), book(3, 5)]).pair_list()
    changed = Response(wire.pair_list_to_json(listed), headers={"ETag": '"changed"'})
    app.answer = lambda content, may_wait: (
        changed if content == LIST and may_wait and app.waiting.count(LIST) == 1 else None
    )
    with following(app, live):
        eventually(lambda: app.waiting.count(LIST) > 1)
        assert sorted(app.plain) == sorted([LIST, name(1), name(2), name(3)])


def test_a_service_that_disappears_is_noticed_while_requests_wait(
    app: Recorded, upstream: LiveIndex, live: LiveIndex, logged: pytest.LogCaptureFixture
):
    server = Restartable(app)
    try:
        with polled(f"http://127.0.0.1:{server.port}", poll_seconds=NEVER, without_waits_seconds=0.01) as feed:
            feed.start(live)
            eventually(lambda: is_waiting(app, 1, 2, 3))
            server.stop()
            eventually(lambda: "cannot be read: Connection refused; keeping its 3 pairs" in logged.text)
            age = feed.age
            eventually(lambda: feed.age > age)
            app.__init__(upstream)  # type: ignore[misc]  # the former app has ended all waits
            upstream.publish(book(2, 9))
            server.start()
            eventually(lambda: (spots(live)[2], feed.problem) == ("9", None))
            eventually(lambda: is_waiting(app, 1, 2, 3))
            upstream.publish(book(2, 10))
            eventually(lambda: spots(live)[2] == "10")
    finally:
        server.stop()


def test_a_book_that_changes_all_the_time_is_requested_in_intervals(
    app: Recorded, upstream: LiveIndex, live: LiveIndex
):
    with following(app, live, change_seconds=0.3):
        eventually(lambda: is_waiting(app, 1, 2, 3))
        started, spot = monotonic(), 10

        def is_requested() -> bool:
            nonlocal spot
            spot += 1
            upstream.publish(book(2, spot))
            return app.waiting.count(name(2)) >= 5

        eventually(is_requested)
        assert monotonic() - started > 3 * 0.3
        eventually(lambda: spots(live)[2] == str(spot))


def test_closing_ends_all_waits_and_their_threads(app: Recorded, live: LiveIndex):
    with following(app, live) as feed:
        eventually(lambda: is_waiting(app, 1, 2, 3))
        feed.close()
        eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("requests to ")])


def test_a_reader_that_reads_once_never_waits(app: Recorded, live: LiveIndex):
    with served(app) as one, polled(f"http://127.0.0.1:{one.port}") as feed:
        assert len(feed.read()) == 3
    assert app.waiting == []
