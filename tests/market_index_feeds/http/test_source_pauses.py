"""A feed of an overloaded service, which asks for a pause with `Retry-After`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event
from typing import Any

import pytest
from starlette.responses import Response

from market_index import LiveIndex
from market_index_feeds.errors import Unavailable
from market_index_feeds.http.client import MAX_IN_FLIGHT
from market_index_feeds.http.limits import PollingLimits
from market_index_feeds.http.source import HttpSource, open_http_source
from market_index_feeds.medium import Update
from market_index_http import create_app
from tests.market_index_feeds.http.services import BOOK, LIST, polled
from tests.market_index_feeds.made_up import book, spots
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
