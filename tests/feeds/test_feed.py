"""What a feed adds to its source: retries, figures of health, logs, the live index, and its end."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from threading import Event, Thread

import pytest

from market_index import Freshness, LiveIndex, PairNotFound
from market_index_feeds import FeedError, NoVersion, open_feed, open_store
from market_index_feeds.feed import Feed
from tests.feeds.contract.lines import book_line, spoiled_line
from tests.feeds.contract.medium import Reader, Ticks, without_waits
from tests.feeds.event_lines import RESET, block
from tests.feeds.made_up import book, pair, spots
from tests.feeds.scripted import ScriptedSource
from tests.waiting import DEADLINE_SECONDS, eventually

NOW = datetime(2026, 11, 22, tzinfo=UTC)


class Clocks:
    """Both clocks of a feed. The wall clock may jump."""

    def __init__(self) -> None:
        self.seconds = self.jump = 0.0

    def feed(self, source: ScriptedSource) -> Feed:
        return Feed(source, clock=lambda: self.seconds, wall_clock=self.wall_clock)

    def wall_clock(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds + self.jump)


@pytest.fixture
def source() -> ScriptedSource:
    source = ScriptedSource()
    source.publish(book(1, 1))
    return source


class TestHealth:
    """Ages, by injected clocks."""

    def test_nothing_is_known_before_the_first_version(self, source: ScriptedSource):
        feed = Feed(source)
        assert (feed.health.age, feed.health.quiet_age, feed.health.change_age, feed.health.revision, feed.version) == (
            inf,
            inf,
            inf,
            None,
            None,
        )
        assert (feed.health.current_rejections, repr(feed)) == (0, "<Feed of scripted>")

    def test_the_age_is_that_of_the_last_check_that_succeeded(self, source: ScriptedSource):
        clocks = Clocks()
        with Reader(clocks.feed(source)) as reader:
            reader.pull()
            clocks.seconds = 5
            reader.pull()
            assert reader.feed.health.age == 0
            source.error = FeedError("it is away")
            clocks.seconds = 8
            reader.pull()
            assert reader.feed.health.age == 3
            source.error = None
            reader.pull()
            assert reader.feed.health.age == 0

    def test_a_version_without_a_publish_time_is_a_publication(self, source: ScriptedSource):
        clocks = Clocks()
        with Reader(clocks.feed(source)) as reader:
            reader.pull()
            clocks.seconds = 5
            reader.pull()
            assert (reader.feed.health.quiet_age, reader.feed.health.change_age) == (5, 5)
            source.publish(book(1, 1), as_of="slot 2")
            reader.pull()
            assert (reader.feed.health.quiet_age, reader.feed.health.change_age) == (0, 5)
            source.publish(book(1, 2), as_of="slot 2")
            reader.pull()
            assert (reader.feed.health.quiet_age, reader.feed.health.change_age) == (0, 0)

    def test_a_publication_is_as_old_as_it_says(self, source: ScriptedSource):
        """A node of the ledger that catches up has a new block each second, of three days ago."""
        clocks = Clocks()
        with Reader(clocks.feed(source)) as reader:
            for number in range(3):
                clocks.seconds = 10 * number
                source.freshness = Freshness(None, NOW - timedelta(days=3) + timedelta(seconds=number))
                reader.pull()
                assert reader.feed.health.quiet_age == 3 * 86_400 + 9 * number
            # A copy that was restored is older than what was shown before.
            source.freshness = Freshness(None, NOW - timedelta(days=4))
            reader.pull()
            assert reader.feed.health.quiet_age == 4 * 86_400 + 20

    def test_a_publication_of_the_future_is_a_problem_until_its_time_comes(self, source: ScriptedSource):
        clocks = Clocks()
        with Reader(clocks.feed(source)) as reader:
            for seconds, is_healthy in ((60, True), (61, False)):
                source.freshness = Freshness(None, NOW + timedelta(seconds=seconds))
                reader.pull()
                assert (reader.feed.health.problem is None) == is_healthy
            assert "in the future: compare the clocks" in str(reader.feed.health.problem)
            clocks.seconds = 1
            reader.pull()
            assert reader.feed.health.problem is None

    def test_a_jump_of_the_wall_clock_changes_no_age(self, source: ScriptedSource):
        clocks, source.freshness = Clocks(), Freshness(None, NOW)
        with Reader(clocks.feed(source)) as reader:
            reader.pull()
            clocks.seconds = 5
            for jump in (-3600, 3600):
                clocks.jump = jump
                reader.pull()
                assert (reader.feed.health.quiet_age, reader.feed.health.change_age) == (5, 5)

    def test_a_publication_before_it_could_be_read_is_as_old_as_the_wall_clocks_say(self, source: ScriptedSource):
        clocks = Clocks()
        clocks.seconds = 100
        source.freshness = Freshness(None, NOW + timedelta(seconds=60))
        with Reader(clocks.feed(source)) as reader:
            reader.pull()
            assert (reader.feed.health.quiet_age, reader.feed.health.change_age) == (40, 40)
            source.error = OSError(5, "it is broken")
            reader.pull()
            source.error, clocks.seconds = None, 200
            source.freshness = Freshness(None, NOW + timedelta(seconds=150))
            reader.pull()
            assert reader.feed.health.quiet_age == 50


class TestErrors:
    """Retries and logs."""

    def test_the_first_attempt_raises(self, source: ScriptedSource, caplog: pytest.LogCaptureFixture):
        source.error = OSError(5, "Input/output error")
        feed, live = Feed(source), LiveIndex()
        with pytest.raises(FeedError, match=r"^scripted cannot be read: Input/output error$"):
            feed.start(live)
        with pytest.raises(FeedError, match=r"^scripted cannot be read: Input/output error$"):
            next(Feed(source).versions())
        assert (len(live.current), caplog.messages) == (0, [])

    def test_each_problem_is_logged_once(self, source: ScriptedSource, caplog: pytest.LogCaptureFixture):
        with caplog.at_level(logging.INFO), Reader(Feed(source)) as reader:
            first = reader.pull()
            source.error = FeedError("it is away")
            assert [reader.pull() for _ in range(3)] == [first] * 3
            source.error = ValueError("a defect")
            assert reader.pull() is first
            source.error = None
            source.no_version = NoVersion("contains nothing")
            reader.pull()
            source.no_version = None
            reader.pull()
        assert [record.message.partition(" after ")[0] for record in caplog.records] == [
            "scripted: cannot be read: it is away; keeping its 1 pairs",
            "scripted: unexpected error",
            "scripted: unexpected error: a defect; keeping its 1 pairs",
            "scripted: contains nothing; keeping its 1 pairs",
            "scripted: recovered",
        ]
        assert [record.exc_info is not None for record in caplog.records] == [False, True, False, False, False]
        assert (reader.feed.health.retries, source.reads) == (4, 5)

    def test_a_version_with_a_problem_is_shown_while_age_and_backoff_increase(
        self, source: ScriptedSource, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ):
        backoffs: list[float] = []

        def next_backoff(seconds: float) -> float:
            backoffs.append(seconds)
            return seconds + 1

        monkeypatch.setattr("market_index_feeds.feed.next_backoff", next_backoff)
        clocks = Clocks()
        with caplog.at_level(logging.INFO), Reader(clocks.feed(source)) as reader:
            reader.pull()
            source.outage = FeedError("it is away")
            for spot in (2, 3):
                source.publish(book(1, spot))
                clocks.seconds += 1
                shown = reader.pull()
                assert (spots(shown.index), shown.problem) == ({1: str(spot)}, "cannot be read: it is away")
                assert reader.feed.health.problem == "cannot be read: it is away"
                assert reader.pull() is shown
            assert (reader.feed.health.age, reader.feed.health.change_age, reader.feed.health.is_unknown) == (
                2,
                0,
                False,
            )
            source.outage = None
            assert reader.pull().problem is None
        assert (reader.feed.health.age, reader.feed.health.problem, backoffs) == (0, None, [0, 1])
        assert [record.message.partition(" after ")[0] for record in caplog.records] == [
            "scripted: cannot be read: it is away; keeping its 1 pairs",
            "scripted: recovered",
        ]

    def test_a_source_that_ends_with_a_problem_keeps_it(self, source: ScriptedSource):
        with Reader(Feed(source)) as reader:
            reader.pull()
            source.outage = FeedError("it is away")
            reader.pull()
            source.has_ended = True
            assert (reader.end(), reader.feed.health.is_unknown) == ("cannot be read: it is away", True)

    def test_a_stream_that_fails_is_not_read_again(self, source: ScriptedSource):
        source.is_stream = True
        with Reader(Feed(source)) as reader:
            reader.pull()
            source.error = OSError(5, "it is broken")
            with pytest.raises(FeedError, match="scripted cannot be read: it is broken"):
                reader.pull()
            assert (reader.feed.health.is_unknown, source.reads) == (True, 1)

    def test_a_source_that_ends_says_why(self, source: ScriptedSource):
        with Reader(Feed(source)) as reader:
            reader.pull()
            source.has_ended = True
            assert (reader.end(), reader.feed.health.is_unknown) == ("has ended", True)

    def test_rejected_records_beyond_twenty_are_counted(self, tmp_path: Path, caplog: pytest.LogCaptureFixture):
        path = tmp_path / "books.ndjson"
        path.write_bytes(book_line(book(1)) + spoiled_line(None) * 25)
        feed = open_feed(path)
        feed.read()
        assert feed.health.rejected == 25
        assert caplog.messages[0].startswith(f"{path}: line 2 rejected: must be ")
        assert caplog.messages[20:] == [f"{path}: 5 more records rejected"]


class TestStart:
    """The thread that shows versions."""

    def test_another_writer_of_the_live_index_is_a_problem_and_is_undone(
        self, source: ScriptedSource, caplog: pytest.LogCaptureFixture
    ):
        live = LiveIndex([book(9)])
        with Feed(source) as feed:
            feed.start(live)
            assert spots(live) == {1: "1"}
            live.publish(book(2, 2))
            eventually(lambda: spots(live) == {1: "1"})
            message = "scripted: its live index was changed by another writer, which a feed undoes; keeping its 1 pairs"
            eventually(lambda: message in caplog.messages)
            eventually(lambda: feed.health.problem is None)

    def test_an_error_after_the_start_raises_nothing(self, source: ScriptedSource):
        live = LiveIndex()
        with Feed(source) as feed:
            feed.start(live)
            source.error = OSError(5, "it is broken")
            eventually(lambda: feed.health.problem == "cannot be read: it is broken")
            assert spots(live) == {1: "1"}

    @pytest.mark.parametrize("name", ["books.ndjson", "orders:events.ndjson", "market.db"])
    def test_what_progress_raises_ends_the_start(self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(tmp_path)
        Path("books.ndjson").write_bytes(book_line(book(1)))
        Path("events.ndjson").write_bytes(RESET + block("slot 1"))
        with open_store("market.db") as store:
            store.publish(book(1))

        def interrupt(done: int, total: int) -> None:
            raise SystemExit(done == total)

        live = LiveIndex()
        with open_feed(name) as feed, pytest.raises(SystemExit):
            feed.start(live, interrupt)
        assert len(live.current) == 0

    def test_a_feed_that_is_closed_while_it_is_loaded_raises(self, source: ScriptedSource):
        reading, go = Event(), Event()

        def pause() -> None:
            reading.set()
            go.wait()

        source.pause = pause  # type: ignore[method-assign]  # of this object
        feed, live = Feed(source), LiveIndex()
        raised: list[FeedError] = []

        def start() -> None:
            with pytest.raises(FeedError) as error:
                feed.start(live)
            raised.append(error.value)

        thread = Thread(target=start)
        thread.start()
        reading.wait()
        feed.close()
        go.set()
        thread.join()
        assert "closed while it was loaded" in str(raised[0])
        assert len(live.current) == 0

    def test_an_exit_of_the_thread_is_a_problem(self, source: ScriptedSource):
        live = LiveIndex()
        with Feed(source) as feed:
            feed.start(live)
            source.error = SystemExit(3)
            eventually(
                lambda: (feed.health.problem, feed.health.is_unknown) == ("is no longer followed: SystemExit(3)", True)
            )
            assert spots(live) == {1: "1"}

    def test_it_needs_a_live_index(self, source: ScriptedSource):
        with pytest.raises(TypeError, match="live must be a LiveIndex"):
            Feed(source).start("live")  # type: ignore[arg-type]  # deliberately


def test_one_book_is_read_as_part_of_all_if_the_medium_cannot_do_else(source: ScriptedSource):
    source.freshness = Freshness("slot 1")
    feed = Feed(source)
    assert feed.read_order_book(pair(1)) == book(1, 1)
    assert feed.version is not None
    assert feed.version.index.as_of == "slot 1"
    with pytest.raises(PairNotFound):
        Feed(source).read_order_book(pair(2))


USES: list[Callable[[Feed], object]] = [
    lambda feed: feed.read(),
    lambda feed: feed.read_order_book(pair(1)),
    lambda feed: feed.start(LiveIndex()),
    lambda feed: next(feed.versions()),
]


class TestStates:
    """A feed is used once, and is closed for good."""

    @pytest.mark.parametrize("number", range(len(USES)))
    @pytest.mark.parametrize("has_own_read", [True, False])
    def test_a_feed_is_used_once(self, source: ScriptedSource, number: int, *, has_own_read: bool):
        if has_own_read:
            source.versions_of = lambda pair, stop: source.versions(stop)  # type: ignore[method-assign]  # of this object
        feed = Feed(source)
        USES[number](feed)
        for use in USES:
            with pytest.raises(FeedError, match=f"scripted is {'closed' if number < 2 else 'in use'}: a feed is"):
                use(feed)
        feed.close()
        for use in USES:
            with pytest.raises(FeedError, match="scripted is closed: a feed is"):
                use(feed)

    def test_a_closed_feed_is_not_used(self, source: ScriptedSource):
        for use in USES:
            feed = Feed(source)
            feed.close()
            with pytest.raises(FeedError, match="scripted is closed: a feed is"):
                use(feed)
        assert source.reads == 0

    def test_a_feed_that_could_not_be_read_is_closed(self, source: ScriptedSource):
        source.error = OSError(5, "it is broken")
        feed = Feed(source)
        with pytest.raises(FeedError, match="it is broken"):
            feed.read_order_book(pair(1))
        with pytest.raises(FeedError, match="is closed"):
            feed.read()

    @pytest.mark.parametrize("error", [None, FeedError("it is away")])
    def test_a_closed_feed_yields_nothing(self, source: ScriptedSource, error: FeedError | None):
        feed = without_waits(Feed(source))
        versions = feed.versions()
        next(versions)
        feed.close()
        source.error = error
        assert list(versions) == []

    def test_a_feed_that_is_closed_while_an_attempt_fails_yields_nothing(self, source: ScriptedSource):
        feed = Feed(source)
        versions = without_waits(feed).versions()
        next(versions)
        source.error, source.pause = FeedError("it is away"), feed.close  # type: ignore[method-assign]  # of this object
        assert list(versions) == []


def test_a_feed_can_be_closed_after_an_interrupt_of_its_wait(source: ScriptedSource):
    """Ctrl-C may raise between two steps of `Event.wait`. Its lock is then acquired for ever."""

    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for microseconds in range(1, 200):
            feed = Feed(source)
            with suppress(Interrupted):
                signal.setitimer(signal.ITIMER_REAL, microseconds * 1e-6)
                feed.wait(0.01)  # a signal just before the wait interrupts it only at its end
            closing = Thread(target=feed.close, daemon=True)
            closing.start()
            closing.join(DEADLINE_SECONDS)
            assert feed.wait(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_iterator_ends_once_the_feed_is_closed(source: ScriptedSource):
    assert len(list(without_waits(Feed(source), Ticks(limit=4)).versions())) == 4
