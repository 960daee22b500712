"""A feed of an overloaded service, which asks for a pause with `Retry-After`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from starlette.responses import Response

from market_index import LiveIndex, OrderBook
from market_index_feeds.errors import Unavailable
from market_index_feeds.http.client import MAX_IN_FLIGHT
from market_index_feeds.http.limits import PollingLimits
from market_index_feeds.http.source import HttpSource, open_http_source
from market_index_feeds.medium import Update
from market_index_http import create_app
from tests.market_index_feeds.http.services import BOOK, LIST, polled
from tests.market_index_feeds.made_up import book, pair, spots
from tests.service import served
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

LONGEST = PollingLimits().retry_seconds
NEVER = 3600.0


class Overloaded:
    """An app that records the paths of its requests, and answers those of `path` with `answer` if there is one."""

    def __init__(self, live: LiveIndex, max_wait: int = 0) -> None:
        self._app = create_app(live, max_wait=max_wait)
        self.end_waits = self._app.end_waits
        self.asked: list[str] = []
        self.answer: Response | None = None
        self.path: str = LIST

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return self._app._waits.requests

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope.get("path", ""))
        is_overloaded = self.answer is not None and scope.get("path") == self.path
        await (self.answer if is_overloaded else self._app)(scope, receive, send)  # type: ignore[misc]  # it is not None


class Pauses(Event):
    """An event that records the pauses of more than a second, and ends them immediately."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None or timeout <= 1:
            return super().wait(timeout)
        self.seconds.append(timeout)
        return self.is_set()


class Pausing(Event):
    """An event that notes when a pause of more than a second begins."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = Event()

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None and timeout > 1:
            self.has_begun.set()
        return super().wait(timeout)


def asks_for_a_pause(delay: str, status: int = 503) -> Response:
    return Response("not now", status, {"Retry-After": delay})


@pytest.fixture
def app(upstream: LiveIndex) -> Overloaded:
    return Overloaded(upstream)


@contextmanager
def opened(app: Overloaded, **limits: Any) -> Iterator[HttpSource]:
    with served(app) as one:
        yield open_http_source(
            f"http://127.0.0.1:{one.port}", PollingLimits(**{"poll_seconds": 0.01, "waiting_pairs": 0, **limits})
        )


def is_about(seconds: float, wanted: float) -> bool:
    """Whether a pause has the wanted length, less the time of a slow machine since the response."""
    return wanted - 20 < seconds <= wanted


@pytest.mark.parametrize(
    ("delay", "wanted"), [("30", 30), ("3600", LONGEST), ("9" * 400, LONGEST)], ids=["short", "long", "very long"]
)
@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_service_gets_no_request_for_as_long_as_it_asks_for(
    app: Overloaded, delay: str, wanted: float, status: int
):
    stop = Pauses()
    with opened(app) as source:
        updates = source.updates(stop, None)
        next(updates)
        app.answer = asks_for_a_pause(delay, status)
        with pytest.raises(Unavailable, match=f"status {status}: 'not now'"):
            next(updates)
        app.answer = None
        with closing(source.updates(stop, None)) as updates:
            next(updates)
    (pause,) = stop.seconds
    assert is_about(pause, wanted)


@pytest.mark.parametrize(
    ("delay", "status"),
    [("0", 503), ("", 503), ("-30", 503), ("30.5", 503), ("Mon, 23 Nov 2026 13:00:00 GMT", 503), ("30", 500)],
)
def test_a_response_that_asks_for_no_seconds_causes_no_pause(app: Overloaded, delay: str, status: int):
    stop = Pauses()
    with opened(app) as source:
        updates = source.updates(stop, None)
        next(updates)
        app.answer = asks_for_a_pause(delay, status)
        with pytest.raises(Unavailable):
            next(updates)
        app.answer = None
        with closing(source.updates(stop, None)) as updates:
            next(updates)
    assert stop.seconds == []


def test_a_request_of_a_book_that_asks_for_a_pause_ends_the_round(live: LiveIndex):
    app = Overloaded(LiveIndex(book(number, number) for number in range(1, 41)))
    stop = Pauses()
    with opened(app) as source, closing(source.updates(stop, None)) as updates:
        next(updates)
        app.path, app.answer = BOOK, asks_for_a_pause("30", 429)
        app.asked.clear()
        assert "has status 429" in str(next(updates).problem)
        assert app.asked.count(BOOK) == MAX_IN_FLIGHT
        app.answer = None
        app.asked.clear()
        assert next(updates).problem is None
        assert app.asked.count(BOOK) == 40
    (pause,) = stop.seconds
    assert is_about(pause, 30)


def test_a_request_that_waits_for_a_change_can_ask_for_a_pause(upstream: LiveIndex):
    app = Overloaded(upstream, max_wait=60)
    stop = Pauses()
    with opened(app, poll_seconds=NEVER, waiting_pairs=64) as source:
        updates = source.updates(stop, None)
        next(updates)
        app.answer = asks_for_a_pause("30")
        # The round that follows the pause fails.
        with pytest.raises(Unavailable, match="status 503"):
            next(updates)
    (pause,) = stop.seconds
    assert is_about(pause, 30)


@pytest.mark.parametrize("path", [LIST, BOOK])
def test_the_first_round_is_not_delayed(app: Overloaded, path: str):
    stop = Pauses()
    app.path, app.answer = path, asks_for_a_pause("30")
    with opened(app) as source:
        with pytest.raises(Unavailable, match="status 503"):
            next(source.updates(stop, None))
        app.answer = None
        with closing(source.updates(stop, None)) as updates:
            assert len(next(updates).books) == 3
    assert stop.seconds == []


class RateLimited(Overloaded):
    """An app that sends no more than `burst` books, until the next pause."""

    def __init__(self, live: LiveIndex, burst: int) -> None:
        super().__init__(live)
        self.burst = self.left = burst

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == BOOK:
            self.answer, self.path = (None if self.left > 0 else asks_for_a_pause("30", 429)), BOOK
            self.left -= 1
        await super().__call__(scope, receive, send)


class Refilling(Pauses):
    """Pauses after which an app sends books again."""

    def __init__(self, app: RateLimited) -> None:
        super().__init__()
        self._app = app

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None and timeout > 1:
            self._app.left = self._app.burst
        return super().wait(timeout)


def test_the_first_round_continues_after_each_pause():
    app = RateLimited(LiveIndex(book(number, number) for number in range(1, 101)), burst=40)
    stop = Refilling(app)
    with opened(app) as source, closing(source.updates(stop, None)) as updates:
        update = next(updates)
    assert (len(update.books), update.problem) == (100, None)
    assert len(stop.seconds) == 2
    # Some requests are in flight when the first one is rejected.
    assert app.asked.count(BOOK) < 100 + 2 * 16


def test_the_first_round_fails_if_a_pause_brings_no_book():
    app = RateLimited(LiveIndex(book(number, number) for number in range(1, 101)), burst=40)
    stop = Pauses()
    with opened(app) as source, pytest.raises(Unavailable, match="status 429"):
        next(source.updates(stop, None))
    assert len(stop.seconds) == 1


def test_a_program_can_end_while_the_first_round_pauses():
    app = RateLimited(LiveIndex(book(number, number) for number in range(1, 101)), burst=40)

    is_pausing = Event()

    class Stop(Event):
        def wait(self, timeout: float | None = None) -> bool:
            is_pausing.set()
            return super().wait(timeout)

    def end(*_: int) -> None:
        if is_pausing.is_set():
            raise SystemExit

    with opened(app) as source, pytest.raises(SystemExit):
        next(source.updates(Stop(), end))


class Patient(Response):
    """A response that asks for a pause once requests wait for both books."""

    def __init__(self, app: Overloaded) -> None:
        super().__init__("not now", 503, {"Retry-After": "30"})
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while self._app.waiting < 2:
            await asyncio.sleep(0.002)
        await super().__call__(scope, receive, send)


class Changing(Pauses):
    """Pauses during which a book changes, and changes back."""

    def __init__(self, app: Overloaded, upstream: LiveIndex) -> None:
        super().__init__()
        self._app = app
        self._upstream = upstream

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None and timeout > 1:
            self._upstream.publish(book(1, 2))
            eventually(lambda: self._app.waiting < 2)
            self._upstream.publish(book(1, 1))
            self._app.answer = None
        return super().wait(timeout)


def test_what_arrives_during_a_pause_is_not_used_after_it():
    upstream = LiveIndex([book(1, 1), book(2, 1)])
    app = Overloaded(upstream, max_wait=60)
    stop = Changing(app, upstream)
    limits = {"poll_seconds": NEVER, "waiting_pairs": 64, "without_waits_seconds": 0}
    with opened(app, **limits) as source, closing(source.updates(stop, None)) as updates:
        next(updates)
        app.answer = Patient(app)
        books = list(next(updates).books)
        upstream.publish(book(2, 2))
        books += until_the_second_changes(updates)
    assert book(1, 2) not in books
    assert len(stop.seconds) == 1


def until_the_second_changes(updates: Iterator[Update]) -> list[OrderBook]:
    """Return all books of the updates until the second book has spot 2."""
    books: list[OrderBook] = []
    while book(2, 2) not in books:
        books += next(updates).books
    return books


class ChangingBack(Overloaded):
    """An app whose first book changes and changes back, before it answers a request for it that does not wait."""

    def __init__(self, upstream: LiveIndex) -> None:
        super().__init__(upstream, max_wait=60)
        self._upstream = upstream
        self.changes = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.changes and str(pair(1).base).encode() in unquote_to_bytes(scope["query_string"]):
            self.changes = False
            waiting = self.waiting
            self._upstream.publish(book(1, 2))
            while self.waiting == waiting:
                await asyncio.sleep(0.002)
            self._upstream.publish(book(1, 1))
        await super().__call__(scope, receive, send)


def test_what_arrives_during_a_round_is_not_used_after_it():
    upstream = LiveIndex([book(1, 1), book(2, 1)])
    app = ChangingBack(upstream)
    with opened(app, poll_seconds=NEVER, waiting_pairs=64) as source, closing(source.updates(Event(), None)) as updates:
        next(updates)
        books: list[OrderBook] = []
        following = in_thread(lambda: books.extend(until_the_second_changes(updates)))
        eventually(lambda: app.waiting == 3)
        app.changes = True
        # A new pair in the list is requested in a round.
        upstream.publish(book(3, 1))
        eventually(lambda: not app.changes)
        upstream.publish(book(2, 2))
        following.join(DEADLINE_SECONDS)
    assert book(3, 1) in books
    assert book(1, 2) not in books


def test_the_end_of_the_feed_ends_a_pause(app: Overloaded):
    stop = Pausing()
    with opened(app, retry_seconds=NEVER) as source:
        updates = source.updates(stop, None)
        next(updates)
        app.answer = asks_for_a_pause("3600")
        with pytest.raises(Unavailable):
            next(updates)
        found: list[Update] = []
        app.asked.clear()
        thread = in_thread(lambda: found.extend(source.updates(stop, None)))
        assert stop.has_begun.wait(DEADLINE_SECONDS)
        stop.set()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
        assert (found, app.asked) == ([], [])


def test_a_feed_recovers_after_a_pause(app: Overloaded, upstream: LiveIndex, live: LiveIndex):
    with served(app) as one, polled(f"http://127.0.0.1:{one.port}", retry_seconds=0.1) as feed:
        feed.start(live)
        app.answer = asks_for_a_pause("3600")
        eventually(lambda: "status 503" in str(feed.problem))
        upstream.publish(book(1, 9))
        app.answer = None
        eventually(lambda: (spots(live)[1], feed.problem) == ("9", None))
