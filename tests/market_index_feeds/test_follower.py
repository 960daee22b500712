"""The follower: counters, logs, failures, and the end of a source."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from math import inf
from threading import Event, Thread
from typing import Any

import pytest

from market_index import Freshness, LiveIndex, MarketIndex
from market_index_feeds import Feed, FeedError, backoff, rejections
from market_index_feeds import follower as follower_module
from market_index_feeds.errors import Unavailable
from market_index_feeds.follower import Follower, State
from market_index_feeds.medium import Delta, Loading, Names, Progress, Snapshot, Update
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.scripted import Scripted, bad
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "LONGEST_SECONDS", 0.01)


class TestCounting:
    """Counters and logs."""

    def test_a_rejected_record_is_reported_once_until_it_is_valid_or_removed(self, logged: pytest.LogCaptureFixture):
        rejected = [bad(1, pair(1)), bad(Names.NONE, "odd")]
        live = LiveIndex()
        source = Scripted(
            Snapshot(rejected=rejected),
            Delta(rejected=rejected),
            Snapshot(rejected=rejected),
            Delta(books=[book(1)]),
            Delta(rejected=rejected),
            Delta(removed=[pair(1)], removed_records=["odd"]),
            Delta(rejected=rejected),
            Snapshot(),
            Snapshot(rejected=rejected),
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            assert feed.rejected == logged.text.count("a script record rejected: no book") == 7

    def test_records_rejected_while_a_snapshot_is_read_are_reported_immediately(self, live: LiveIndex):
        source = Scripted(
            Loading(rejected=[bad(1)]),
            lambda: reported.append(feed.rejected),
            Snapshot(books=[book(1), book(2)]),
            Loading(rejected=[bad(1)]),
            Snapshot(rejected_names=[pair(1)]),
        )
        reported: list[int] = []
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            assert (feed.rejected, reported, spots(live)) == (2, [1], {1: None})

    def test_current_rejections_are_counted_and_the_oldest_retained_book_has_an_age(self, live: LiveIndex):
        shown: list[tuple[int, bool]] = []
        rejecting = Delta(rejected=[bad(1, pair(1)), bad(Names.NONE, "odd"), bad(2, pair(2))])

        def show() -> None:
            shown.append((feed.current_rejections, feed.retained_age is not None))

        source = Scripted(
            Snapshot(books=[book(1), book(3)]),
            show,
            rejecting,
            show,
            # The same records again, then a check that finds no change.
            rejecting,
            Delta(),
            show,
            Delta(books=[book(1)]),
            show,
            Delta(removed_records=["odd", "another"]),
            show,
            Snapshot(unchanged=[pair(1), pair(3)]),
            show,
            Snapshot(rejected=[bad(Names.ANY)]),
            show,
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        # No book of pair 2 is live, so none is retained.
        assert shown == [(0, False), (3, True), (3, True), (2, False), (1, False), (0, False), (1, True)]

    def test_a_retained_book_is_older_than_the_last_check(self, live: LiveIndex):
        source = Scripted(Snapshot(books=[book(1)]), Delta(rejected=[bad(1, pair(1))]), *[Delta()] * 3)
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            age = feed.age
            assert feed.retained_age is not None
            assert feed.retained_age > age

    def test_a_book_that_is_retained_from_the_start_has_an_age(self, live: LiveIndex):
        with Feed(Scripted(Snapshot(books=[book(1)], rejected=[bad(1)]))) as feed:
            feed.start(live)
            assert feed.retained_age is not None
            assert feed.retained_age < inf

    def test_each_rejected_line_is_reported(self):
        with Feed(source := Scripted(Snapshot(rejected=[bad(1)]), Delta(rejected=[bad(1), bad(1)]))) as feed:
            feed.start(LiveIndex())
            eventually(lambda: not source.left)
            assert feed.rejected == 3

    def test_all_rejections_are_counted_and_the_first_of_a_minute_are_logged(
        self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
    ):
        now = [0.0]
        monkeypatch.setattr(rejections, "monotonic", lambda: now[0])
        source = Scripted(
            Loading(rejected=[bad(1)] * 15),
            Snapshot(rejected=[bad(1)] * 15),
            lambda: now.__setitem__(0, 60.0),
            Delta(),
            lambda: minutes.append(logged.messages[-1]),
            Delta(rejected=[bad(1)] * 1000),
        )
        minutes: list[str] = []
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            assert feed.rejected == 1030
        assert minutes == ["a script: 10 more records rejected within a minute"]
        assert logged.messages[-1] == "a script: 980 more records rejected within a minute"
        assert logged.text.count("a script record rejected: no book") == 40

    def test_rejections_of_a_failing_source_are_reported_at_the_end_of_the_minute(
        self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
    ):
        now = [0.0]
        monkeypatch.setattr(rejections, "monotonic", lambda: now[0])
        source = Scripted(
            Snapshot(rejected=[bad(1)] * 21), lambda: now.__setitem__(0, 60.0), *[Unavailable("gone")] * 2, lambda: None
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: "a script: 1 more records rejected within a minute" in logged.messages)

    def test_publications_and_changes_have_ages(self, live: LiveIndex):
        ages: list[tuple[bool, bool, bool]] = []

        def show() -> None:
            ages.append((feed.is_blank, feed.quiet_age < inf, feed.change_age < inf))

        source = Scripted(Snapshot(is_blank=True), show, Delta(revision=1), show, Delta(books=[book(1)]), show)
        with Feed(source) as feed:
            show()
            feed.start(live)
            eventually(lambda: not source.left)
        assert ages == [(True, False, False)] * 2 + [(False, True, False), (False, True, True)]

    def test_a_publication_that_is_read_late_has_its_age_by_wall_clocks(self, live: LiveIndex):
        """The first publication is late. Later its age counts from its arrival."""
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        ages: list[float] = []
        source = Scripted(
            Snapshot(freshness=Freshness(published_at=hour_ago)),
            lambda: ages.append(feed.quiet_age),
            Delta(freshness=Freshness(published_at=hour_ago + timedelta(seconds=1))),
            lambda: ages.append(feed.quiet_age),
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        first, second = ages
        assert second < 3599 < first

    def test_books_and_revisions_are_those_that_are_live(self):
        source = Scripted(
            Snapshot(books=[book(1)], books_read=5, revision=7), Delta(books=[book(2)]), Delta(revision=9)
        )
        with Feed(source) as feed:
            feed.start(LiveIndex())
            eventually(lambda: feed.revision == 9)
            assert feed.books == 6
            assert repr(feed) == "<Feed of a script: 6 books, 0 rejected>"
            assert (feed.record, feed.followed_by_many) == ("records", True)


class TestFailing:
    """Errors of a source do not affect live books."""

    def test_a_failing_source_is_opened_again_and_each_problem_is_logged_once(
        self, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        gone, broken = FileNotFoundError(2, "No such file or directory"), Unavailable("it is damaged")
        source = Scripted(Snapshot(books=[book(1)]), gone, gone, broken, Delta(books=[book(2)]), gone, Delta())
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert set(spots(live)) == {1, 2}
        messages = [record.getMessage() for record in logged.records]
        assert messages[0] == "a script: cannot be read: No such file or directory; keeping its 1 pairs"
        assert messages[1] == "a script: cannot be read: it is damaged; keeping its 1 pairs"
        assert messages[2].startswith("a script: recovered after ")
        assert messages[3] == "a script: cannot be read: No such file or directory; keeping its 2 pairs"
        assert messages[4].startswith("a script: recovered after ")
        assert len(messages) == 5
        assert source.opened == source.closed == 5

    def test_an_unexpected_error_is_logged_with_its_traceback_and_following_resumes(
        self, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        source = Scripted(Snapshot(books=[book(1)]), ZeroDivisionError("a defect"), Delta(books=[book(2)]))
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert set(spots(live)) == {1, 2}
        assert "ZeroDivisionError: a defect" in logged.text
        assert "unexpected error: a defect; keeping its 1 pairs" in logged.text

    def test_a_repeated_unexpected_error_is_logged_once(self, live: LiveIndex, logged: pytest.LogCaptureFixture):
        script = [ZeroDivisionError("a defect") for _ in range(5)]
        with Feed(source := Scripted(Snapshot(books=[book(1)]), *script)) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert logged.text.count("Traceback") == 1

    def test_a_source_that_cannot_be_closed_is_opened_again(self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch):
        class Unclosable(Scripted):
            def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
                try:
                    yield from super().updates(stop, progress)
                finally:
                    if self.opened == 1:
                        raise OSError(5, "Input/output error")

        failing = [ZeroDivisionError("a defect")]

        def update(self: LiveIndex, *changes: Any) -> MarketIndex:
            if len(self.current) and failing:
                raise failing.pop()
            return updated(self, *changes)

        updated = LiveIndex.update_from
        monkeypatch.setattr(LiveIndex, "update_from", update)
        with Feed(source := Unclosable(Snapshot(books=[book(1)]), Delta(books=[book(2)]))) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert set(spots(live)) == {1, 2}
        assert (source.opened, source.closed, failing) == (2, 2, [])

    def test_a_feed_without_a_thread_is_an_error_and_can_be_started_again(
        self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        class Failing(Thread):
            def start(self) -> None:
                raise RuntimeError("can't start new thread")

        source = Scripted(Snapshot(books=[book(1)]), Snapshot(books=[book(2)]))
        with Feed(source) as feed:
            with monkeypatch.context() as patch:
                patch.setattr(follower_module, "Thread", Failing)
                with pytest.raises(FeedError, match="cannot be followed: can't start"):
                    feed.start(live)
            assert source.closed == 1
            feed.start(live)
            eventually(lambda: not source.left)
        assert set(spots(live)) == {2}

    def test_a_source_that_yields_nothing_is_an_error(self, live: LiveIndex):
        for work in (lambda feed: feed.start(live), lambda feed: feed.read()):
            with pytest.raises(FeedError, match=r"^a script cannot be read: it ended before all of it was read$"):
                work(Feed(Scripted(ends=True)))

    def test_a_stream_that_fails_before_its_end_is_an_error(self):
        for error in (Unavailable("it is damaged"), OSError(5, "it is damaged")):
            feed = Feed(source := Scripted(Snapshot(books=[book(1)], has_more=True), error))
            with pytest.raises(FeedError, match=r"^a script cannot be read: it is damaged$"):
                feed.read()
            assert source.closed == 1

    def test_an_unreadable_part_makes_a_feed_failing_until_it_is_read(self, live: LiveIndex):
        follower = Follower(
            source := Scripted(
                Snapshot(books=[book(1)]), Snapshot(unchanged=[pair(1)], problem="503"), Delta(problem="503")
            )
        )
        follower.start(live, None)
        eventually(lambda: not source.left)
        eventually(lambda: follower.state is State.FAILING)
        assert follower.problem == "cannot be read: 503"
        age = follower.age
        eventually(lambda: follower.age > age)
        follower.close()
        eventually(lambda: follower.state is State.CLOSED)

    def test_a_source_with_a_problem_from_the_start_was_never_healthy(
        self, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        resume = Event()
        source = Scripted(Snapshot(is_blank=True, problem="no reset yet"), resume.wait, Delta(books=[book(1)]))
        follower = Follower(source)
        follower.start(live, None)
        assert (follower.state, follower.age) == (State.FAILING, inf)
        assert follower.problem == "cannot be read: no reset yet"
        resume.set()
        eventually(lambda: follower.problem is None)
        assert spots(live) == {1: None}
        assert follower.state is State.FOLLOWING
        assert "a script: recovered after" in logged.text
        follower.close()

    def test_a_blank_source_with_a_problem_has_that_problem(self, live: LiveIndex):
        script = (Snapshot(books=[book(1)]), Snapshot(is_blank=True), Snapshot(is_blank=True, problem="no reset yet"))
        with Feed(source := Scripted(*script)) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            assert feed.problem == "cannot be read: no reset yet"

    def test_a_source_that_ends_is_not_opened_again(self, live: LiveIndex, logged: pytest.LogCaptureFixture):
        for source, problem, last in (
            (
                Scripted(Snapshot(books=[book(1)]), ends=True),
                "has ended",
                "a script ended: 1 order books read, 0 records rejected",
            ),
            (
                Scripted(Snapshot(books=[book(1)]), Unavailable("gone", is_final=True)),
                "cannot be read: gone",
                "a script: cannot be read: gone",
            ),
        ):
            follower = Follower(source)
            follower.start(live, None)
            eventually(lambda follower=follower: follower.state is State.ENDED)  # type: ignore[misc]  # a default has no type
            eventually(lambda last=last: last in logged.text)  # type: ignore[misc]  # a default has no type
            follower.close()
            assert (source.opened, source.closed, spots(live)) == (1, 1, {1: None})
            assert (follower.problem, follower.is_unknown) == (problem, True)

    def test_the_age_of_an_ended_source_increases(self, live: LiveIndex):
        """Its producer may have died, so its books are stale: `/healthz` answers 503 with `--max-stale`."""
        follower = Follower(Scripted(Snapshot(books=[book(1)]), ends=True))
        follower.start(live, None)
        eventually(lambda: follower.state is State.ENDED)
        age = follower.age
        eventually(lambda: follower.age > age)

    def test_a_source_that_cannot_be_loaded_is_an_error_and_can_be_started_again(self, live: LiveIndex):
        source = Scripted(Unavailable("it is damaged"), OSError(5, "Input/output error"), Snapshot(books=[book(1)]))
        with Feed(source) as feed:
            for reason in ("it is damaged", "Input/output error"):
                with pytest.raises(FeedError, match=f"^a script cannot be read: {reason}$"):
                    feed.start(live)
            assert feed.age == float("inf")
            feed.start(live)
            for again in (lambda: feed.start(live), feed.read, lambda: feed.read_order_book(pair(1))):
                with pytest.raises(RuntimeError, match="a feed is started once, or read once"):
                    again()
        assert spots(live) == {1: None}
