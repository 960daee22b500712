"""Following a source: counters, logs, failures, and the end of a source."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from math import inf
from threading import Event, Thread
from typing import Any

import pytest

from market_index import Freshness, LiveIndex
from market_index_feeds import Feed, FeedError
from market_index_feeds import feed as feed_module
from market_index_feeds.errors import Unavailable
from market_index_feeds.medium import Progress, Unnamed, Update
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.scripted import Scripted, bad, complete, whole
from tests.waiting import eventually


class Minute:
    """A clock that advances only to the end of its first minute, when `end` is called."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self) -> float:
        return self._seconds

    def end(self) -> None:
        self._seconds = 60.0


class TestCounting:
    """Counters and logs."""

    def test_a_rejected_record_is_reported_once_until_it_is_valid_or_removed(self, logged: pytest.LogCaptureFixture):
        rejected = [bad(1), bad("odd")]
        live = LiveIndex()
        source = Scripted(
            Update(replaces_all=True, rejected=rejected),
            Update(rejected=rejected),
            Update(replaces_all=True, rejected=rejected),
            Update(books=[book(1)]),
            Update(rejected=rejected),
            Update(removed=[pair(1)], resolved=["odd"]),
            Update(rejected=rejected),
            Update(replaces_all=True),
            Update(replaces_all=True, rejected=rejected),
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            assert feed.rejected == logged.text.count("a script record rejected: no book") == 7

    def test_records_rejected_while_a_snapshot_is_read_are_reported_immediately(self, live: LiveIndex):
        source = Scripted(
            Update(is_loading=True, rejected=[bad(1)]),
            lambda: reported.append(feed.rejected),
            Update(replaces_all=True, books=[book(1), book(2)]),
            Update(is_loading=True, rejected=[bad(1)]),
            Update(replaces_all=True, is_complete=True, invalid=[pair(1)]),
        )
        reported: list[int] = []
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            assert (feed.rejected, reported, spots(live)) == (2, [1], {1: None, 2: None})

    def test_current_rejections_are_counted_and_the_oldest_retained_book_has_an_age(self, live: LiveIndex):
        shown: list[tuple[int, bool]] = []
        rejecting = Update(rejected=[bad(1), bad("odd"), bad(2)], invalid=[pair(1), pair(2)])

        def show() -> None:
            shown.append((feed.current_rejections, feed.retained_age is not None))

        source = Scripted(
            Update(replaces_all=True, books=[book(1), book(3)]),
            show,
            rejecting,
            show,
            # The same records again, then a check that finds no change.
            rejecting,
            Update(),
            show,
            Update(books=[book(1)]),
            show,
            Update(resolved=["odd", "another"]),
            show,
            Update(replaces_all=True, unchanged=[pair(1), pair(3)]),
            show,
            Update(replaces_all=True, rejected=[bad()], invalid=[Unnamed.UNREADABLE]),
            show,
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        # No book of pair 2 is live, so none is retained.
        assert shown == [(0, False), (3, True), (3, True), (2, False), (1, False), (0, False), (1, True)]

    def test_a_retained_book_is_older_than_the_last_check(self, live: LiveIndex):
        source = Scripted(
            Update(replaces_all=True, books=[book(1)]), Update(rejected=[bad(1)], invalid=[pair(1)]), *[Update()] * 3
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            age = feed.age
            assert feed.retained_age is not None
            assert feed.retained_age > age

    def test_a_book_that_new_content_lacks_is_retained(self, live: LiveIndex):
        with Feed(Scripted(Update(replaces_all=True, books=[book(1)]), Update(replaces_all=True))) as feed:
            feed.start(live)
            eventually(lambda: feed.retained_age is not None)
            assert 0 <= (feed.retained_age or -1) < inf

    def test_each_rejected_line_is_reported(self):
        with Feed(
            source := Scripted(Update(replaces_all=True, rejected=[bad()]), Update(rejected=[bad(), bad()]))
        ) as feed:
            feed.start(LiveIndex())
            eventually(lambda: not source.left)
            assert feed.rejected == 3

    def test_all_rejections_are_counted_and_the_first_of_a_minute_are_logged(
        self, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        minute = Minute()
        source = Scripted(
            Update(is_loading=True, rejected=[bad()] * 15),
            Update(replaces_all=True, rejected=[bad()] * 15),
            minute.end,
            Update(),
            lambda: minutes.append(logged.messages[-1]),
            Update(rejected=[bad()] * 1000),
        )
        minutes: list[str] = []
        with Feed(source, clock=minute) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            assert feed.rejected == 1030
        assert minutes == ["a script: 10 more records rejected within a minute"]
        assert logged.messages[-1] == "a script: 980 more records rejected within a minute"
        assert logged.text.count("a script record rejected: no book") == 40

    def test_rejections_of_a_failing_source_are_reported_at_the_end_of_the_minute(
        self, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        minute = Minute()
        source = Scripted(
            Update(replaces_all=True, rejected=[bad()] * 21),
            minute.end,
            *[Unavailable("gone")] * 2,
            lambda: None,
        )
        with Feed(source, clock=minute) as feed:
            feed.start(live)
            eventually(lambda: "a script: 1 more records rejected within a minute" in logged.messages)

    def test_publications_and_changes_have_ages(self, live: LiveIndex):
        ages: list[tuple[bool, bool, bool]] = []

        def show() -> None:
            ages.append((feed.problem is None, feed.quiet_age < inf, feed.change_age < inf))

        source = Scripted(
            Update(replaces_all=True, is_blank=True), show, Update(revision=1), show, Update(books=[book(1)]), show
        )
        with Feed(source) as feed:
            show()
            feed.start(live)
            eventually(lambda: not source.left)
        assert ages == [(True, False, False), (False, False, False), (True, True, False), (True, True, True)]

    def test_a_publication_that_is_read_late_has_its_age_by_wall_clocks(self, live: LiveIndex):
        """The first publication is late. Later its age counts from its arrival."""
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        ages: list[float] = []
        source = Scripted(
            Update(replaces_all=True, freshness=Freshness(published_at=hour_ago)),
            lambda: ages.append(feed.quiet_age),
            Update(freshness=Freshness(published_at=hour_ago + timedelta(seconds=1))),
            lambda: ages.append(feed.quiet_age),
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        first, second = ages
        assert second < 3599 < first

    def test_books_and_revisions_are_those_that_are_live(self):
        source = Scripted(
            Update(replaces_all=True, books=[book(1)], books_read=5, revision=7),
            Update(books=[book(2)]),
            Update(revision=9),
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
        source = Scripted(
            Update(replaces_all=True, books=[book(1)]), gone, gone, broken, Update(books=[book(2)]), gone, Update()
        )
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
        assert feed.retries == 4

    def test_an_unexpected_error_is_logged_with_its_traceback_and_following_resumes(
        self, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        source = Scripted(
            Update(replaces_all=True, books=[book(1)]), ZeroDivisionError("a defect"), Update(books=[book(2)])
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert set(spots(live)) == {1, 2}
        assert "ZeroDivisionError: a defect" in logged.text
        assert "unexpected error: a defect; keeping its 1 pairs" in logged.text

    def test_a_repeated_unexpected_error_is_logged_once(self, live: LiveIndex, logged: pytest.LogCaptureFixture):
        script = [ZeroDivisionError("a defect") for _ in range(5)]
        with Feed(source := Scripted(Update(replaces_all=True, books=[book(1)]), *script)) as feed:
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

        def show(self: LiveIndex, *indexes: Any, **options: Any) -> bool:
            if len(self.current) and failing:
                raise failing.pop()
            return shown(self, *indexes, **options)

        shown = LiveIndex.show
        monkeypatch.setattr(LiveIndex, "show", show)
        with Feed(source := Unclosable(Update(replaces_all=True, books=[book(1)]), Update(books=[book(2)]))) as feed:
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

        source = Scripted(complete(1), complete(2))
        with Feed(source) as feed:
            with monkeypatch.context() as patch:
                patch.setattr(feed_module, "Thread", Failing)
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
            feed = Feed(source := Scripted(Update(replaces_all=True, books=[book(1)], has_more=True), error))
            with pytest.raises(FeedError, match=r"^a script cannot be read: it is damaged$"):
                feed.read()
            assert source.closed == 1

    def test_an_unreadable_part_makes_a_feed_failing_until_it_is_read(self, live: LiveIndex):
        feed = Feed(
            source := Scripted(
                Update(replaces_all=True, books=[book(1)]),
                Update(replaces_all=True, unchanged=[pair(1)], problem="503"),
                Update(problem="503"),
            )
        )
        feed.start(live)
        eventually(lambda: not source.left)
        eventually(lambda: feed.problem == "cannot be read: 503")
        eventually(lambda: feed.retries == 2)
        age = feed.age
        eventually(lambda: feed.age > age)
        feed.close()

    def test_a_source_with_a_problem_from_the_start_was_never_healthy(
        self, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        resume = Event()
        source = Scripted(
            Update(replaces_all=True, is_blank=True, problem="no reset yet"), resume.wait, Update(books=[book(1)])
        )
        feed = Feed(source)
        feed.start(live)
        assert feed.age == inf
        assert feed.problem == "cannot be read: no reset yet"
        resume.set()
        eventually(lambda: feed.problem is None)
        assert spots(live) == {1: None}
        assert "a script: recovered after" in logged.text
        feed.close()

    def test_a_content_that_is_unknown_stays_so_while_the_source_cannot_be_read(self, live: LiveIndex):
        seen: list[tuple[str | None, bool]] = []

        def see() -> None:
            seen.append((feed.problem, feed.is_unknown))

        unknown, known = Update(unknown="no reset yet", problem="gone"), Update(problem="gone")
        source = Scripted(whole(1), unknown, see, Unavailable("gone"), see, known, see)
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert seen == [("cannot be read: gone", True)] * 2 + [("cannot be read: gone", False)]

    def test_a_problem_of_a_source_that_changes_is_logged_once(self, live: LiveIndex, logged: pytest.LogCaptureFixture):
        filling = [Update(books=[book(number)]) for number in range(8)]
        with Feed(source := Scripted(whole(*range(9)), whole(), *filling)) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert logged.text.count("lacks live pairs") == 1

    def test_a_publication_into_a_source_with_a_problem_is_not_late(self, live: LiveIndex):
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        source = Scripted(
            *(whole(1), whole(is_blank=True), Update(books=[book(2)], freshness=Freshness(published_at=hour_ago))),
        )
        with Feed(source) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            assert (feed.is_unknown, feed.quiet_age < 3599) == (True, True)

    def test_a_blank_source_with_a_problem_has_that_problem(self, live: LiveIndex):
        script = (
            Update(replaces_all=True, books=[book(1)]),
            Update(replaces_all=True, is_blank=True),
            Update(replaces_all=True, is_blank=True, problem="no reset yet"),
        )
        with Feed(source := Scripted(*script)) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
            assert feed.problem == "cannot be read: no reset yet"

    def test_a_source_that_ends_is_not_opened_again(self, live: LiveIndex, logged: pytest.LogCaptureFixture):
        feed = Feed(source := Scripted(whole(1), ends=True))
        feed.start(live)
        eventually(lambda: "a script ended: 1 order books read, 0 records rejected" in logged.text)
        feed.close()
        assert (source.opened, source.closed, spots(live)) == (1, 1, {1: None})
        assert (feed.problem, feed.is_unknown) == ("has ended", True)

    def test_the_age_of_an_ended_source_increases(self, live: LiveIndex):
        """Its producer may have died, so its books are stale: `/healthz` answers 503 with `--max-stale`."""
        feed = Feed(Scripted(Update(replaces_all=True, books=[book(1)]), ends=True))
        feed.start(live)
        eventually(lambda: feed.problem == "has ended")
        age = feed.age
        eventually(lambda: feed.age > age)

    def test_a_source_that_cannot_be_loaded_is_an_error_and_can_be_started_again(self, live: LiveIndex):
        source = Scripted(
            Unavailable("it is damaged"), OSError(5, "Input/output error"), Update(replaces_all=True, books=[book(1)])
        )
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


def test_when_a_waiting_program_is_woken_the_content_of_the_feed_is_new(
    live: LiveIndex, monkeypatch: pytest.MonkeyPatch
):
    feed = Feed(source := Scripted(whole(1), Update(books=[book(2)])))
    seen: list[bool] = []
    monkeypatch.setattr(live._condition, "notify_all", lambda: seen.append(feed.content.index is live.current))
    with feed:
        feed.start(live)
        eventually(lambda: not source.left)
    assert seen == [True, True]
