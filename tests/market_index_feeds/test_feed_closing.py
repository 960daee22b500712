"""Closing a feed at any moment, from any thread."""

from __future__ import annotations

import logging
from contextlib import suppress
from threading import Barrier, Event, Thread, current_thread
from threading import enumerate as threads
from typing import Any

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, FeedError, rejections
from market_index_feeds import feed as feed_module
from market_index_feeds.feed import FeedState
from market_index_feeds.medium import Update
from tests.market_index_feeds.made_up import book, spots
from tests.market_index_feeds.scripted import Scripted, bad, whole
from tests.waiting import DEADLINE_SECONDS, eventually, raised_in_thread


def require_free(lock: Any) -> None:
    """Raise `RuntimeError` if another thread holds the lock."""
    if not lock.acquire(blocking=False):
        raise RuntimeError
    lock.release()


class TestClosing:
    """`close` may come at any moment, from any thread."""

    def test_a_close_at_any_moment_of_a_start_releases_everything(self):
        for moment in range(100):
            source = Scripted(Update(replaces_all=True, books=[book(1)]), lambda: None, Update())
            feed, together = Feed(source), Barrier(2)

            def start(feed: Feed = feed, together: Barrier = together) -> None:
                together.wait()
                with suppress(FeedError, RuntimeError):
                    feed.start(LiveIndex())

            starting = Thread(target=start)
            starting.start()
            together.wait()
            for _ in range(moment):
                pass
            feed.close()
            starting.join(DEADLINE_SECONDS)
            assert not starting.is_alive()
            assert source.opened == source.closed
            assert not [thread for thread in threads() if thread.name == "feed a script"]

    def test_a_close_before_the_thread_has_started_waits_for_it(self, monkeypatch: pytest.MonkeyPatch):
        feed = Feed(source := Scripted(Update(replaces_all=True, books=[book(1)])))
        starting = Event()
        raised: list[str] = []

        def close() -> None:
            starting.wait(DEADLINE_SECONDS)
            raised.append(raised_in_thread(feed.close))

        closing = Thread(target=close)
        closing.start()

        class Slow(Thread):
            def start(self) -> None:
                starting.set()
                # Long enough for a close that does not wait.
                closing.join(0.2)
                super().start()

        monkeypatch.setattr(feed_module, "Thread", Slow)
        feed.start(LiveIndex())
        closing.join(DEADLINE_SECONDS)
        assert (raised, source.closed) == ([""], 1)

    def test_a_close_while_it_is_loaded_makes_the_start_raise(self, live: LiveIndex):
        for work in (lambda feed: feed.start(live), lambda feed: feed.read()):
            feed = Feed(Scripted(lambda: feed.close(), Update(replaces_all=True, books=[book(1)])))  # noqa: B023, PLW0108  # it is not made yet
            with pytest.raises(FeedError, match=r"^a script was closed while it was loaded$"):
                work(feed)
        assert len(live.current) == 0

    def test_a_close_while_the_first_snapshot_is_applied_closes_the_source_and_publishes_nothing(self, live: LiveIndex):
        class Closing(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                feed.close()

        handler = Closing()
        feed = Feed(source := Scripted(Update(replaces_all=True, books=[book(1)], rejected=[bad(2)])))
        rejections.LOG.addHandler(handler)
        try:
            with pytest.raises(FeedError, match="was closed while it was loaded"):
                feed.start(live)
        finally:
            rejections.LOG.removeHandler(handler)
        assert source.closed == 1
        assert spots(live) == {}

    def test_an_interrupt_after_the_thread_has_started_closes_the_feed(
        self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(LiveIndex, "show", interrupt)
        feed = Feed(source := Scripted(whole(1), Update(books=[book(2)])))
        with pytest.raises(KeyboardInterrupt):
            feed.start(live)
        assert (source.closed, spots(live)) == (1, {})

    def test_a_blocked_thread_is_abandoned_and_publishes_nothing(
        self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
    ):
        stuck, released = Event(), Event()

        def read() -> None:
            stuck.set()
            released.wait(DEADLINE_SECONDS)

        feed = Feed(source := Scripted(Update(replaces_all=True, books=[book(1)]), read, Update(books=[book(2)])))
        feed.start(live)
        assert stuck.wait(DEADLINE_SECONDS)
        feed.close()
        assert (source.closed, "a script: closed, but a read of it has not returned yet" in logged.text) == (0, True)
        released.set()
        eventually(lambda: source.closed)
        assert spots(live) == {1: None}

    def test_a_close_in_the_middle_of_an_update_of_the_live_index_returns(
        self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
    ):
        """A signal handler may interrupt the update that the feed waits for."""
        held, following = Event(), Event()
        feed = Feed(source := Scripted(whole(1), following.set, held.wait, Update(books=[book(2)])))
        feed.start(live)
        assert following.wait(DEADLINE_SECONDS)
        with live._condition:
            held.set()
            eventually(lambda: raised_in_thread(lambda: require_free(feed._lock)))
            feed.close()
            assert "a script: closed, but an update from it has not returned yet" in logged.text
            assert feed._state is FeedState.CLOSED
        eventually(lambda: source.closed)
        assert spots(live) == {1: None, 2: None}

    def test_a_close_just_before_an_update_is_applied_keeps_it_from_being_published(self, live: LiveIndex):
        feed = Feed(source := Scripted(Update(replaces_all=True, books=[book(1)])))
        feed.start(live)
        feed._stop.set()
        feed._apply(Update(books=[book(2)]), live)
        feed.close()
        assert (source.closed, spots(live)) == (1, {1: None})

    def test_the_own_thread_of_a_feed_may_close_it(self, live: LiveIndex):
        closed_by: list[str] = []

        def close() -> None:
            closed_by.append(current_thread().name)
            feed.close()

        feed = Feed(source := Scripted(Update(replaces_all=True, books=[book(1)]), close, Update(books=[book(2)])))
        feed.start(live)
        eventually(lambda: source.closed)
        assert closed_by == ["feed a script"]
        assert spots(live) == {1: None}
