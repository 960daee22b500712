"""The follower: which pairs belong to a feed, and what happens when a source fails, ends or is closed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Hashable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf
from threading import Barrier, Event, Thread, current_thread
from threading import enumerate as threads
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index_feeds import Feed, FeedError, backoff, rejections
from market_index_feeds import follower as follower_module
from market_index_feeds.errors import Unavailable
from market_index_feeds.follower import Follower, State
from market_index_feeds.medium import Delta, Loading, Names, Progress, Rejected, Snapshot, Source, Update
from tests.market_index_feeds.made_up import book, pair, spots
from tests.waiting import DEADLINE_SECONDS, WITHOUT_SHRINKING, eventually, raised_in_thread


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "LONGEST_SECONDS", 0.01)


class Scripted(Source):
    """A source that does what its script says: it yields updates, raises errors and makes calls, then waits or ends."""

    record = "records"

    def __init__(self, *script: Update | Exception | Callable[[], object], ends: bool = False) -> None:
        super().__init__("a script")
        self.left = list(script)
        self.ends = ends
        self.opened = self.closed = 0

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        self.opened += 1
        try:
            while self.left and not stop.is_set():
                step = self.left[0]
                if isinstance(step, Exception):
                    del self.left[0]
                    raise step
                if isinstance(step, (Snapshot, Delta, Loading)):
                    yield step
                else:
                    step()
                del self.left[0]
            if not self.ends:
                stop.wait()
        finally:
            self.closed += 1


def live_after(*script: Any) -> dict[int, str | None]:
    """Return what is live once a feed has followed a script to its end."""
    live = LiveIndex()
    with Feed(source := Scripted(*script)) as feed:
        feed.start(live)
        eventually(lambda: not source.left)
    return spots(live)


def require_free(lock: Any) -> None:
    """Raise `RuntimeError` if another thread holds the lock."""
    if not lock.acquire(blocking=False):
        raise RuntimeError
    lock.release()


def bad(names: int | Names, record: Hashable = None) -> Rejected:
    named: Pair | Names = pair(names) if isinstance(names, int) else names
    return Rejected("record", "no book", named, record)


class TestOwnership:
    """Which pairs are retracted, and which are kept."""

    def test_a_snapshot_retracts_pairs_that_it_does_not_name(self):
        assert live_after(Snapshot(books=[book(1), book(2)]), Snapshot(books=[book(3)], unchanged=[pair(2)])) == {
            2: None,
            3: None,
        }

    def test_pairs_of_others_are_not_changed(self):
        live = LiveIndex([book(7)])
        with Feed(source := Scripted(Snapshot(books=[book(1)]), Snapshot(books=[book(2)]))) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert spots(live) == {2: None, 7: None}

    def test_a_pair_that_the_source_contains_but_that_was_never_read_is_not_owned(self):
        live = LiveIndex([book(7)])
        with Feed(source := Scripted(Snapshot(unchanged=[pair(7)]), Snapshot(books=[book(2)]))) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert spots(live) == {2: None, 7: None}

    def test_a_pair_that_the_source_removes_but_that_was_never_read_is_not_owned(self):
        live = LiveIndex([book(7)])
        with Feed(source := Scripted(Snapshot(rejected=[bad(7)]), Delta(removed=[pair(7)]))) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert spots(live) == {7: None}

    def test_a_rejected_record_keeps_the_pair_that_it_names_until_it_is_removed(self):
        first = Snapshot(books=[book(1), book(2)])
        assert live_after(first, Snapshot(books=[book(3)], rejected=[bad(1)])) == {1: None, 3: None}
        assert live_after(first, Snapshot(books=[book(3)], rejected=[bad(1)]), Snapshot(books=[book(3)])) == {3: None}
        assert live_after(first, Snapshot(books=[book(3)], rejected=[bad(1)]), Delta(removed=[pair(1)])) == {3: None}

    def test_a_record_that_may_name_any_pair_keeps_all_and_one_that_names_none_keeps_none(self):
        first = Snapshot(books=[book(1), book(2)])
        assert set(live_after(first, Snapshot(books=[book(3)], rejected=[bad(Names.ANY)]))) == {1, 2, 3}
        assert set(live_after(first, Snapshot(books=[book(3)], rejected=[bad(Names.NONE)]))) == {3}

    def test_an_unfinished_record_keeps_pairs_until_it_is_finished(self):
        script = [Snapshot(books=[book(1), book(2)]), Snapshot(books=[book(3)], unfinished=Names.ANY)]
        assert set(live_after(*script)) == {1, 2, 3}
        assert set(live_after(*script, Delta(unfinished=pair(2)))) == {2, 3}
        assert set(live_after(*script, Delta(books=[book(2)]))) == {2, 3}

    def test_a_blank_source_keeps_all_until_it_contains_something(self):
        script = [Snapshot(books=[book(1)]), Snapshot(is_blank=True)]
        assert set(live_after(*script, Delta())) == {1}
        assert set(live_after(*script, Delta(books=[book(2)]))) == {2}
        assert set(live_after(Snapshot(books=[book(1)]), Snapshot())) == set()

    numbers = st.lists(st.integers(0, 4), max_size=4, unique=True)
    names: st.SearchStrategy[Pair | Names] = st.sampled_from([Names.ANY, Names.NONE, *map(pair, range(5))])
    rejections = st.lists(names.map(lambda names: Rejected("record", "no book", names)), max_size=2)
    books = numbers.map(lambda numbers: [book(number) for number in numbers])
    pairs = numbers.map(lambda numbers: list(map(pair, numbers)))
    snapshots = st.builds(
        Snapshot, books=books, unchanged=pairs, rejected=rejections, unfinished=names, is_blank=st.just(False)
    ) | st.just(Snapshot(is_blank=True))
    deltas = st.builds(Delta, books=books, removed=pairs, rejected=rejections, unfinished=names)

    @settings(phases=WITHOUT_SHRINKING)
    @given(st.lists(snapshots | deltas, max_size=8))
    def test_live_pairs_equal_a_model_that_decides_for_each_pair(self, script: list[Snapshot | Delta]):
        live, seen = LiveIndex(), list[set[Pair]]()
        steps = [step for update in script for step in (update, lambda: seen.append(set(live.current)))]
        with Feed(source := Scripted(Snapshot(), *steps)) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        model = Model()
        assert seen == [model.after(update) for update in script]


class Model:
    """Decides for each pair by itself whether it is live."""

    def __init__(self) -> None:
        self.live: set[Pair] = set()
        self.named: set[Pair] = set()
        self.bad: list[Pair | Names] = []
        self.blank = False

    def after(self, update: Snapshot | Delta) -> set[Pair]:
        """Return the pairs that are live after an update."""
        books = {one.pair for one in update.books}
        removed: set[Pair] = set()
        rejected = [one.names for one in update.rejected]
        if isinstance(update, Snapshot):
            self.named = books | {one for one in update.unchanged if one in self.live}
            self.bad, self.blank = rejected, update.is_blank
        else:
            removed = {one for one in update.removed if one not in books}
            self.named = {one for one in self.named if one not in removed} | books
            self.bad = [one for one in self.bad if one not in books and one not in removed] + rejected
            if books or removed or rejected or update.unfinished is not Names.NONE:
                self.blank = False
        self.live = {
            one
            for one in map(pair, range(5))
            if one in self.named or (one in self.live and one not in removed and self.is_kept(one, update.unfinished))
        }
        return self.live

    def is_kept(self, one: Pair, unfinished: Pair | Names) -> bool:
        return self.blank or any(names in {one, Names.ANY} for names in [*self.bad, unfinished])


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
            # The same again, then a check that finds no change.
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
    """What a source raises costs nothing that is live."""

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
                None,
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
            assert follower.problem == problem

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


class Growing(Scripted):
    """A source into which something is published before each read."""

    slot = 0

    def read_freshness(self) -> Freshness:
        self.slot += 1
        return Freshness(f"slot {self.slot}")

    def read_order_book(self, pair: Pair) -> OrderBook:
        del pair
        self.slot += 1
        return book(1, self.slot)


class TestClosing:
    """`close` may come at any moment, from any thread."""

    def test_a_close_at_any_moment_of_a_start_releases_everything(self):
        for moment in range(100):
            source = Scripted(Snapshot(books=[book(1)]), lambda: None, Delta())
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
        feed = Feed(source := Scripted(Snapshot(books=[book(1)])))
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

        monkeypatch.setattr(follower_module, "Thread", Slow)
        feed.start(LiveIndex())
        closing.join(DEADLINE_SECONDS)
        assert (raised, source.closed) == ([""], 1)

    def test_a_close_while_it_is_loaded_makes_the_start_raise(self, live: LiveIndex):
        for work in (lambda feed: feed.start(live), lambda feed: feed.read()):
            feed = Feed(Scripted(lambda: feed.close(), Snapshot(books=[book(1)])))  # noqa: B023, PLW0108  # it is not made yet
            with pytest.raises(FeedError, match=r"^a script was closed while it was loaded$"):
                work(feed)
        assert len(live.current) == 0

    def test_a_close_while_the_first_snapshot_is_applied_closes_the_source_and_publishes_nothing(self, live: LiveIndex):
        class Closing(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                feed.close()

        handler = Closing()
        feed = Feed(source := Scripted(Snapshot(books=[book(1)], rejected=[bad(2)])))
        rejections.LOG.addHandler(handler)
        try:
            with pytest.raises(FeedError, match="was closed while it was loaded"):
                feed.start(live)
        finally:
            rejections.LOG.removeHandler(handler)
        assert source.closed == 1
        assert spots(live) == {}

    def test_a_blocked_thread_is_abandoned_and_publishes_nothing(
        self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
    ):
        monkeypatch.setattr(follower_module, "CLOSE_SECONDS", 0.05)
        stuck, released = Event(), Event()

        def read() -> None:
            stuck.set()
            released.wait(DEADLINE_SECONDS)

        feed = Feed(source := Scripted(Snapshot(books=[book(1)]), read, Delta(books=[book(2)])))
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
        """A signal handler may interrupt the update that the follower waits for."""
        monkeypatch.setattr(follower_module, "CLOSE_SECONDS", 0.05)
        held = Event()
        feed = Feed(source := Scripted(Snapshot(books=[book(1)]), held.wait, Delta(books=[book(2)])))
        feed.start(live)
        with live._lock:
            held.set()
            eventually(lambda: raised_in_thread(lambda: require_free(feed._follower._lock)))
            feed.close()
            assert "a script: closed, but an update from it has not returned yet" in logged.text
            assert feed._follower.state is State.CLOSED
        eventually(lambda: source.closed)
        assert spots(live) == {1: None, 2: None}

    def test_a_close_just_before_an_update_is_applied_keeps_it_from_being_published(self, live: LiveIndex):
        feed = Feed(source := Scripted(Snapshot(books=[book(1)])))
        feed.start(live)
        feed._follower._stop.set()
        feed._follower._apply(Delta(books=[book(2)]), live)
        feed.close()
        assert (source.closed, spots(live)) == (1, {1: None})

    def test_the_own_thread_of_a_follower_may_close_it(self, live: LiveIndex):
        closed_by: list[str] = []

        def close() -> None:
            closed_by.append(current_thread().name)
            feed.close()

        feed = Feed(source := Scripted(Snapshot(books=[book(1)]), close, Delta(books=[book(2)])))
        feed.start(live)
        eventually(lambda: source.closed)
        assert closed_by == ["feed a script"]
        assert spots(live) == {1: None}

    def test_a_source_that_has_more_is_read_to_its_end(self):
        source = Scripted(Snapshot(books=[book(1)], has_more=True), Delta(books=[book(2)]))
        reported: list[tuple[int, int]] = []
        feed = Feed(source)
        assert spots(feed.read(lambda *progress: reported.append(progress))) == {1: None, 2: None}
        assert reported == [(0, 0)]
        assert source.closed == 1
        again = Scripted(Snapshot(books=[book(1)], has_more=True), Delta(books=[book(2)]))
        assert spots(Feed(again).read()) == {1: None, 2: None}

    def test_one_book_is_read_with_all_others_if_the_medium_has_no_better_way(self):
        assert Feed(Scripted(Snapshot(books=[book(1, 5), book(2)]))).read_order_book(pair(1)) == book(1, 5)

    def test_the_freshness_of_one_book_is_read_before_the_book(self):
        source = Growing()
        feed = Feed(source)
        assert (feed.read_order_book(pair(1)), feed.freshness) == (book(1, 2), Freshness("slot 1"))

    def test_the_freshness_of_one_book_is_that_of_all_if_all_are_read(self):
        feed = Feed(Scripted(Snapshot(books=[book(1)], freshness=Freshness("slot 1"))))
        feed.read_order_book(pair(1))
        assert feed.freshness == Freshness("slot 1")
