"""Feeds that replay a recording: when each change is due, loops, and rejected lines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from math import inf
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, FeedError, Update, open_feed
from market_index_feeds.feed import CLOSE_SECONDS
from market_index_feeds.medium import Unnamed
from market_index_feeds.ndjson.replay_source import CHECK_SECONDS, LOOP_SECONDS, ReplaySource
from tests.market_index_feeds.made_up import pair, spots
from tests.market_index_feeds.ndjson.lines import commit, line, retraction
from tests.market_index_feeds.ndjson.recordings import recorded
from tests.waiting import eventually


class Clock:
    """A clock that only the waits of a replay advance. It can set `stop` at a time."""

    def __init__(self, stops_at: float = inf) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        self._stops_at = 1000.0 + stops_at

    def __call__(self) -> float:
        return self.now

    def wait(self, stop: Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        if self.now >= self._stops_at:
            stop.set()
        return stop.is_set()


def timed(path: Path, clock: Clock, *, speed: float = 1.0, loop: bool = False) -> list[tuple[float, str | None]]:
    """Replay until the end, or until the clock sets `stop`. Return when each change was yielded, and its as_of."""
    source = ReplaySource(str(path), speed=speed, loop=loop, clock=clock, wait=clock.wait)
    found: list[tuple[float, str | None]] = []
    for update in source.updates(Event(), None):
        if update.freshness is not None:
            found.append((round(clock.now - 1000, 6), update.freshness.as_of))
    return found


class TestTimes:
    """When a change is due."""

    def test_changes_follow_each_other_as_they_were_recorded(self, path: Path):
        path.write_bytes(recorded(5, "a") + recorded(5.25, "b") + recorded(5.25, "c") + recorded(65, "d"))
        assert timed(path, Clock()) == [(0, "a"), (0.25, "b"), (0.25, "c"), (60, "d")]
        assert timed(path, Clock(), speed=10) == [(0, "a"), (0.025, "b"), (0.025, "c"), (6, "d")]
        assert timed(path, Clock(), speed=0.5) == [(0, "a"), (0.5, "b"), (0.5, "c"), (120, "d")]

    def test_a_clock_that_was_set_back_is_not_waited_for(self, path: Path):
        path.write_bytes(recorded(5, "a") + recorded(1, "b") + recorded(3, "c"))
        assert timed(path, Clock()) == [(0, "a"), (0, "b"), (2, "c")]

    def test_a_late_change_does_not_delay_the_next_one(self, path: Path):
        path.write_bytes(recorded(0, "a") + recorded(1, "b") + recorded(3, "c"))
        clock = Clock()
        source = ReplaySource(str(path), clock=clock, wait=clock.wait)
        found = []
        for update in source.updates(Event(), None):
            found.append((clock.now - 1000, update.freshness and update.freshness.as_of))
            clock.now += 1.5
        assert found == [(0, "a"), (1.5, "b"), (3, "c"), (4.5, None)]

    def test_each_second_of_a_wait_is_a_check(self, path: Path):
        path.write_bytes(recorded(0) + recorded(2.5))
        clock = Clock()
        source = ReplaySource(str(path), clock=clock, wait=clock.wait)
        updates = list(source.updates(Event(), None))
        assert clock.waits == [CHECK_SECONDS, CHECK_SECONDS, 0.5]
        assert updates[1:3] == [Update(has_more=True)] * 2
        assert updates[-1] == Update()
        assert len(updates) == 5

    def test_a_loop_begins_again_a_second_after_its_end(self, path: Path):
        path.write_bytes(recorded(0, "a") + recorded(2, "b"))
        rounds = timed(path, Clock(stops_at=8), loop=True)
        assert rounds == [(0, "a"), (2, "b"), (2 + LOOP_SECONDS, "a"), (5, "b"), (6, "a")]
        assert timed(path, Clock(stops_at=1.2), loop=True, speed=4) == [(0, "a"), (0.5, "b"), (0.75, "a")]

    def test_a_change_is_published_now(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1) + recorded(0, "slot 1"))
        before = datetime.now(UTC)
        with open_feed(f"replay:{path}") as feed:
            feed.start(live)
            assert live.current.as_of == "slot 1"
            assert live.current.published_at is not None
            assert (live.current.published_at - before).total_seconds() > -0.002


class TestStopping:
    """A wait ends when the feed is closed."""

    @pytest.mark.parametrize("stops_at", [0, 5])
    def test_a_stopped_replay_yields_nothing_more(self, path: Path, stops_at: float):
        path.write_bytes(recorded(0, "a") + recorded(10, "b"))
        assert timed(path, Clock(stops_at), loop=True) == [(0, "a")]

    def test_a_replay_that_is_stopped_before_it_starts_yields_nothing(self, path: Path):
        path.write_bytes(recorded(0))
        stop = Event()
        stop.set()
        assert list(ReplaySource(str(path)).updates(stop, None)) == []

    def test_a_replay_that_is_stopped_while_it_reads_yields_nothing_more(self, path: Path):
        path.write_bytes(b"nonsense\n" + recorded(0))
        stop = Event()
        updates = ReplaySource(str(path)).updates(stop, None)
        assert next(updates).is_loading
        stop.set()
        assert list(updates) == []

    def test_closing_does_not_wait_for_the_next_change(self, path: Path, live: LiveIndex):
        path.write_bytes(recorded(0) + recorded(100_000))
        with open_feed(f"replay:{path}") as feed:
            feed.start(live)
            start = monotonic()
            feed.close()
            assert monotonic() - start < CLOSE_SECONDS


class TestContent:
    """What the changes of a replay contain."""

    @pytest.fixture
    def looping(self, path: Path, live: LiveIndex) -> Iterator[Feed]:
        path.write_bytes(
            line(1, "1") + line(2, "2") + recorded(0, "a") + retraction(1) + line(3, "3") + recorded(1, "b")
        )
        with open_feed(f"replay:{path}?loop&speed=100") as feed:
            feed.start(live)
            yield feed

    def test_each_round_retracts_the_pairs_that_its_first_content_lacks(self, looping: Feed, live: LiveIndex):
        seen = [(spots(live), live.current.as_of)]
        index = live.current
        for _ in range(6):
            index = live.wait(index)
            seen.append((spots(index), index.as_of))
        assert ({1: "1", 2: "2"}, "a") in seen
        assert all(one in [({1: "1", 2: "2"}, "a"), ({2: "2", 3: "3"}, "b")] for one in seen)
        assert looping.problem is None

    def test_a_file_that_another_one_replaces_is_replayed_in_the_next_round(
        self, looping: Feed, path: Path, live: LiveIndex
    ):
        beside = path.with_suffix(".new")
        beside.write_bytes(line(7, "7") + recorded(0, "c"))
        beside.replace(path)
        eventually(lambda: (spots(live), live.current.as_of) == ({7: "7"}, "c"))
        beside.write_bytes(b"")
        beside.replace(path)
        eventually(
            lambda: (
                looping.problem == "cannot be read: it must contain a commit line with recorded_at, got none "
                "(market-index record writes them)"
            )
        )
        assert spots(live) == {7: "7"}
        beside.write_bytes(line(8, "8") + recorded(0, "d"))
        beside.replace(path)
        eventually(lambda: (spots(live), live.current.as_of, looping.problem) == ({8: "8"}, "d", None))

    def test_the_end_without_a_loop_is_that_of_a_stream(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1, "1") + recorded(0) + line(1, "2") + recorded(0.01))
        with open_feed(f"replay:{path}") as feed:
            assert not feed.followed_by_many
            assert feed.source == str(path)
            feed.start(live)
            eventually(lambda: feed.problem == "has ended")
            assert feed.is_unknown
            assert spots(live) == {1: "2"}
        assert spots(open_feed(f"replay:{path}?speed=1000").read()) == {1: "2"}

    def test_an_invalid_line_keeps_the_last_book_and_hides_the_as_of(
        self, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        bad = line(1).replace(b"[]", b"0")
        path.write_bytes(line(1, "1") + recorded(0, "a") + bad + line(2, "2") + commit("slot 9") + recorded(2, "b"))
        with open_feed(f"replay:{path}?loop&speed=10") as feed:
            feed.start(live)
            eventually(lambda: (spots(live), live.current.as_of) == ({1: "1", 2: "2"}, None))
            assert "line 3 rejected: bids: must be an array" in caplog.text
            assert "line 5 rejected: recorded_at: missing" in caplog.text
            eventually(lambda: (spots(live), live.current.as_of) == ({1: "1"}, "a"))

    def test_an_invalid_line_in_the_first_content_retracts_nothing_in_later_rounds(self, path: Path):
        path.write_bytes(b"nonsense\n" + line(1) + recorded(0) + line(2) + recorded(0))
        source = ReplaySource(str(path), loop=True, speed=1000)
        updates = source.updates(Event(), None)
        whole = [one for one in islice(updates, 6) if one.replaces_all]
        assert [set(one.removed) for one in whole] == [set(), set()]
        assert all(one.invalid == {Unnamed.UNREADABLE} for one in whole)

    def test_a_round_retracts_no_pair_that_the_recording_has_retracted(self, path: Path):
        """Another program may publish the pair into the same store."""
        path.write_bytes(line(1) + recorded(0) + line(2) + line(3) + recorded(0) + retraction(3) + recorded(0))
        updates = ReplaySource(str(path), loop=True, speed=1000).updates(Event(), None)
        assert [set(one.removed) for one in islice(updates, 4)] == [set(), set(), {pair(3)}, {pair(2)}]

    def test_progress_is_reported_until_the_first_change(self, path: Path, live: LiveIndex):
        path.write_bytes((b" " * 99_999 + b"\n") * 10 + line(1) + recorded(0) + recorded(0))
        seen: list[tuple[int, int]] = []
        with open_feed(f"replay:{path}") as feed:
            feed.start(live, lambda *sizes: seen.append(sizes))
            eventually(lambda: feed.problem == "has ended")
        assert [size for _, size in seen] == [path.stat().st_size] * 3
        assert [done for done, _ in seen] == [262_144, 524_288, 786_432]


class TestOpening:
    """Files that are not recordings."""

    def test_a_file_without_a_recorded_change_is_an_error_before_anything_is_published(
        self, path: Path, live: LiveIndex
    ):
        path.write_bytes(line(1) + commit("slot 1"))
        with pytest.raises(FeedError, match="cannot be read: it must contain a commit line with recorded_at, got none"):
            open_feed(f"replay:{path}").start(live)
        assert not live.current

    @pytest.mark.parametrize("name", ["nowhere.ndjson", "", "-", "a\0b"])
    def test_a_file_that_cannot_be_opened_is_an_error(self, name: str):
        with pytest.raises(FeedError, match="cannot be replayed"):
            open_feed(f"replay:{name}")
