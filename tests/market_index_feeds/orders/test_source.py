"""Files and streams of events: live changes, retained blocks, and the problem of an unknown state."""

from __future__ import annotations

import os
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from market_index import LiveIndex, MarketIndex
from market_index_feeds import Feed, FeedError, Relay, open_feed, open_store
from market_index_feeds.coverage import Coverage
from market_index_feeds.line_feed import LineFeedSource
from market_index_feeds.line_source import LineBatch, LineCutter, LineStream
from market_index_feeds.orders.blocks import Blocks
from tests.market_index_feeds.checks import await_check
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.orders.lines import RESET, block, event, place, remove, rollback, spot, untrack
from tests.market_index_feeds.orders.model import EVENTS, Book, Model, State, books_of
from tests.market_index_feeds.scripted_lines import ScriptedLines
from tests.waiting import WITHOUT_SHRINKING, eventually, in_thread

BEFORE = RESET + place("a") + place("b", 2) + block("1")


def asks(live: LiveIndex | MarketIndex) -> dict[int, int]:
    """The best ask of each pair: pair -> amount, 0 if it has none."""
    index = live.current if isinstance(live, LiveIndex) else live
    return {
        int.from_bytes(one.base.policy_id): book.best_ask.accumulated_liquidity if book.best_ask else 0
        for one, book in index.items()
    }


def named(path: Path) -> str:
    return f"orders:{path}"


def append(path: Path, content: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(content)


def rename_over(path: Path, content: bytes) -> None:
    """Replace a file in one step."""
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    beside.replace(path)


class TestFiles:
    """A file that is followed."""

    def test_each_block_and_rollback_goes_live(self, path: Path, live: LiveIndex):
        path.write_bytes(BEFORE + place("c", 1))
        with open_feed(named(path)) as feed:
            feed.start(live)
            assert (asks(live), live.current.as_of) == ({1: 10, 2: 10}, "1")
            assert (feed.problem, feed.followed_by_many, feed.content.coverage.is_complete) == (None, True, True)
            append(path, block("2") + remove("a") + untrack(9) + block("3"))
            eventually(lambda: (asks(live), live.current.as_of) == ({1: 10, 2: 10}, "3"))
            append(path, place("d", 3) + rollback("2"))
            eventually(lambda: (asks(live), live.current.as_of) == ({1: 20, 2: 10}, "2"))
            append(path, remove("b") + untrack(2) + block("3"))
            eventually(lambda: (asks(live), live.current.as_of) == ({1: 20}, "3"))

    def test_a_block_without_changes_is_a_heartbeat(self, path: Path, live: LiveIndex):
        path.write_bytes(BEFORE)
        with open_feed(named(path)) as feed:
            feed.start(live)
            append(path, block("2"))
            eventually(lambda: live.current.as_of == "2")
            changed, quiet = feed.change_age, feed.quiet_age
            assert quiet < changed

    def test_the_last_block_stays_while_the_state_is_unknown(
        self, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        path.write_bytes(BEFORE)
        with open_feed(named(path)) as feed:
            feed.start(live)
            append(path, remove("c") + place("d") + block("2"))
            reason = "cannot remove order 'c': there is no such order"
            problem = f"its state is unknown since line 5: {reason}; waiting for a reset"
            eventually(lambda: feed.problem == problem)
            age = feed.age
            eventually(lambda: feed.age > age + 0.1)
            assert (asks(live), live.current.as_of, feed.rejected) == ({1: 10, 2: 10}, "1", 1)
            assert f"{path} line 5 rejected: {reason}" in caplog.text
            assert f"{path}: {problem}; keeping its 2 pairs" in caplog.text
            # A producer that was killed in a line leaves this.
            append(path, b'{"place":"x","ba' + b"\n" + RESET + place("a", 3) + block("9"))
            eventually(lambda: (asks(live), live.current.as_of) == ({3: 10}, "9"))
            eventually(lambda: feed.problem is None)
            assert (feed.rejected, feed.current_rejections) == (1, 0)
        assert "recovered after" in caplog.text

    @pytest.mark.decision(26)
    def test_an_order_without_liquidity_is_counted_while_it_rests(
        self, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        path.write_bytes(BEFORE + place("c", price="0") + block("2"))
        with open_feed(named(path)) as feed:
            feed.start(live)
            assert (asks(live), live.current.as_of) == ({1: 10, 2: 10}, "2")
            assert (feed.problem, feed.rejected, feed.current_rejections, feed.retained_age) == (None, 1, 1, None)
            assert f"{path} line 5 rejected: order 'c' has no liquidity: a ratio must be above 0" in caplog.text
            append(path, place("c", price="-1") + block("3"))
            eventually(lambda: live.current.as_of == "3")
            assert (feed.rejected, feed.current_rejections) == (1, 1)
            append(path, remove("c") + block("4"))
            eventually(lambda: (live.current.as_of, feed.current_rejections) == ("4", 0))
            append(path, rollback("3"))
            eventually(lambda: (live.current.as_of, feed.current_rejections, feed.rejected) == ("3", 1, 2))

    @pytest.mark.parametrize(
        "odd",
        [
            place("c", price="0"),
            spot(1, "-1"),
            event(place="c", base="ADA", quote="ADA", offered="base", amount=1, price="1"),
        ],
    )
    def test_an_impossible_order_or_price_hides_no_as_of_and_blocks_no_retraction(
        self, path: Path, live: LiveIndex, odd: bytes
    ):
        path.write_bytes(BEFORE + odd + block("2"))
        with open_feed(named(path)) as feed:
            feed.start(live)
            assert (live.current.as_of, feed.current_rejections, feed.retained_age) == ("2", 1, None)
            assert (feed.content.coverage, feed.problem) == (Coverage(is_complete=True), None)
            append(path, remove("b") + untrack(2) + block("3"))
            eventually(lambda: (asks(live), live.current.as_of) == ({1: 10}, "3"))
            # The content of the new file lacks pair 4.
            append(path, place("d", 4) + block("4"))
            eventually(lambda: 4 in asks(live))
            rename_over(path, RESET + place("a") + odd + block("5"))
            eventually(lambda: (asks(live), live.current.as_of) == ({1: 10}, "5"))

    def test_a_replaced_file_stays_live_until_the_first_block_of_the_new_one(
        self, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        path.write_bytes(BEFORE)
        with open_feed(named(path)) as feed:
            feed.start(live)
            for content in (b"", place("z", 7) + block("7"), RESET + place("z", 7)):
                rename_over(path, content)
                eventually(lambda: feed.problem is not None)
                assert (asks(live), live.current.as_of) == ({1: 10, 2: 10}, "1")
                rename_over(path, BEFORE)
                eventually(lambda: feed.problem is None)
            rename_over(path, RESET + place("a", 2, amount=5))
            eventually(lambda: feed.problem is not None)
            assert (asks(live), live.current.as_of) == ({1: 10, 2: 10}, "1")
            append(path, block("2"))
            eventually(lambda: (asks(live), live.current.as_of) == ({2: 5}, "2"))
            eventually(lambda: feed.problem is None)
        assert "reloaded, because it was replaced or truncated: 1 pairs dropped" in caplog.text

    @pytest.mark.parametrize("more", [b"", place("b", amount=100) + block("2")])
    def test_a_file_that_is_rewritten_in_place_is_read_again(self, path: Path, live: LiveIndex, more: bytes):
        path.write_bytes(RESET + place("a", amount=900) + block("1"))
        with open_feed(named(path)) as feed:
            feed.start(live)
            # A shell that redirects into the file does this. The new size is not less than the bytes read.
            path.write_bytes(RESET + place("a", amount=105) + block("7") + more)
            eventually(lambda: live.current.as_of == ("2" if more else "7"))
            (level,) = live.current.order_book(pair(1)).asks
            assert level.accumulated_liquidity == (205 if more else 105)

    def test_a_file_that_is_rewritten_in_place_is_complete_at_its_first_block(self, path: Path, live: LiveIndex):
        path.write_bytes(BEFORE)
        with open_feed(named(path)) as feed:
            feed.start(live)
            path.write_bytes(RESET + place("a", amount=105))
            eventually(lambda: feed.problem is not None)
            assert (set(asks(live)), live.current.as_of) == ({1, 2}, "1")
            append(path, block("7"))
            eventually(lambda: (asks(live), live.current.as_of) == ({1: 105}, "7"))
            eventually(lambda: feed.problem is None)

    def test_a_file_that_vanishes_is_a_problem(self, path: Path, live: LiveIndex):
        path.write_bytes(BEFORE)
        with open_feed(named(path)) as feed:
            feed.start(live)
            path.unlink()
            eventually(lambda: feed.problem == "cannot be read: No such file or directory")

    def test_a_feed_without_a_block_was_never_healthy_until_it_has_one(
        self, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        path.write_bytes(place("a"))
        with open_feed(named(path)) as feed:
            feed.start(live)
            assert (asks(live), feed.age, feed.quiet_age, feed.is_unknown) == ({}, inf, inf, True)
            assert not feed.content.coverage.is_complete
            assert feed.problem == "its state is not known yet; waiting for a reset"
            append(path, RESET + place("a"))
            eventually(lambda: feed.problem is not None and "first block after its reset" in feed.problem)
            append(path, block("1"))
            eventually(lambda: asks(live) == {1: 10})
            eventually(lambda: feed.problem is None and feed.content.coverage.is_complete)
            await_check(feed)
        assert "1 events wait for a block" not in caplog.text

    def test_events_that_wait_for_a_block_are_logged(
        self, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        path.write_bytes(BEFORE + place("c") + remove("a"))
        with open_feed(named(path)) as feed:
            feed.start(live)
        assert f"{path}: 2 events wait for a block" in caplog.text

    def test_a_file_can_be_read_once(self, path: Path):
        path.write_bytes(BEFORE + remove("a"))
        index = open_feed(named(path)).read()
        assert (asks(index), index.as_of) == ({1: 10, 2: 10}, "1")
        assert open_feed(named(path)).read_order_book(pair(2)).best_ask is not None

    def test_a_file_is_read_again_after_an_unexpected_error(
        self, path: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ):
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a defect")

        path.write_bytes(BEFORE)
        with open_feed(named(path)) as feed:
            feed.start(live)
            with monkeypatch.context() as broken:
                broken.setattr(LiveIndex, "show", fail)
                append(path, place("c") + block("2"))
                eventually(lambda: "RuntimeError: a defect" in caplog.text)
            eventually(lambda: (asks(live), live.current.as_of) == ({1: 20, 2: 10}, "2"))


@settings(phases=WITHOUT_SHRINKING)
@given(
    st.lists(st.tuples(st.lists(EVENTS, max_size=15), st.lists(st.floats(0, 1), max_size=6)), min_size=1, max_size=4)
)
def test_what_is_live_equals_the_model(files: list[tuple[list[bytes], list[float]]]):
    """For any chunks of a file, and for a file that replaces another one, from its first block on."""
    script: list[LineBatch] = []
    expected: list[tuple[dict[int, Book], str | None, int]] = []
    visible = State()
    as_of: str | None = None
    for events, cuts in files:
        model = Model(2)
        content = b"".join(lines := [RESET, *events])
        cutter = LineCutter()
        ends = sorted({*(round(cut * len(content)) for cut in cuts), len(content)})
        for number, (start, end) in enumerate(pairwise([0, *ends])):
            cut = list(cutter.feed(content[start:end]))
            for line in cut:
                model.apply(lines[line.number - 1])
            script.append(LineBatch(cut, cutter.unfinished, end, len(content), is_start=number == 0))
            if model.as_of is not None:
                visible, as_of = model.visible, model.as_of
            expected.append((visible.books, as_of, len(visible.faulty)))
    first = next((batch.lines for batch in script if batch.lines), [])
    # Otherwise it is rejected as a text.
    assume(2 * sum(line.text == b"nonsense" for line in first) <= len(first))
    live = LiveIndex()

    def seen() -> tuple[dict[int, Book], str | None, int]:
        return books_of(live.current), live.current.as_of, feed.current_rejections

    source = ScriptedLines(script, seen)
    with Feed(LineFeedSource(source, partial(Blocks, 2))) as feed:
        feed.start(live)
        eventually(source.is_over.is_set)
    assert source.seen == expected


class TestStreams:
    """A pipe, which cannot be read again."""

    def test_it_is_complete_from_its_first_block_on(self, pipe: Path, live: LiveIndex):
        with open_feed(named(pipe)) as feed, pipe.open("r+b", buffering=0) as writer:
            assert not feed.followed_by_many
            writer.write(RESET + place("a"))
            feed.start(live)
            assert not feed.content.coverage.is_complete
            writer.write(block("1"))
            eventually(lambda: feed.content.coverage.is_complete and asks(live) == {1: 10})

    def test_a_stream_is_read_to_its_end_despite_idle_periods(self, pipe: Path):
        def write() -> None:
            with pipe.open("wb", buffering=0) as writer:
                writer.write(BEFORE)
                eventually(lambda: len(reported) > 2)
                writer.write(place("c") + block("2") + remove("a"))

        reported: list[tuple[int, int]] = []
        thread = in_thread(write)
        index = open_feed(named(pipe)).read(lambda *progress: reported.append(progress))
        thread.join()
        assert (asks(index), index.as_of) == ({1: 20, 2: 10}, "2")

    def test_a_stream_continues_after_an_unexpected_error(
        self, pipe: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ):
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a defect")

        with open_feed(named(pipe)) as feed, pipe.open("r+b", buffering=0) as writer:
            writer.write(BEFORE)
            feed.start(live)
            with monkeypatch.context() as broken:
                broken.setattr(LiveIndex, "show", fail)
                writer.write(place("c", price="0") + place("d") + block("2") + remove("b") + untrack(2))
                eventually(lambda: "RuntimeError: a defect" in caplog.text)
            eventually(lambda: (asks(live), live.current.as_of) == ({1: 20, 2: 10}, "2"))
            writer.write(block("3"))
            eventually(lambda: (asks(live), live.current.as_of) == ({1: 20}, "3"))
            assert (feed.rejected, feed.current_rejections) == (1, 1)

    def test_an_unfinished_last_line_is_logged_and_not_visible(self, pipe: Path, caplog: pytest.LogCaptureFixture):
        thread = in_thread(lambda: pipe.write_bytes(BEFORE + place("c") + block("2")[:-1]))
        index = open_feed(named(pipe)).read()
        thread.join()
        assert (asks(index), index.as_of) == ({1: 10, 2: 10}, "1")
        assert f"{pipe} line 6 rejected: must end with a newline" in caplog.text

    def test_a_relay_retracts_what_it_does_not_name_from_its_first_block_on(self, tmp_path: Path):
        """A relay of a stream of books must wait for its end, which may never come."""
        reading, writing = os.pipe()
        os.write(writing, RESET)
        store = tmp_path / "market.db"
        with open_store(store) as before:
            before.publish(book(8), book(9))
        with Feed(LineFeedSource(LineStream("a pipe", reading), Blocks)) as feed:
            relay = Relay(feed, lambda: open_store(store))
            relay.start()
            thread = in_thread(relay.run)
            try:
                assert set(spots(open_feed(store).read())) == {8, 9}
                os.write(writing, spot(1, "5") + place("a", 2) + block("1"))
                eventually(lambda: spots(open_feed(store).read()) == {1: "5", 2: None})
                eventually(lambda: open_feed(store).read().as_of == "1")
            finally:
                relay.close()
                thread.join()
        os.close(reading)
        os.close(writing)


class TestReadingOnce:
    """Events that are read once, to their end."""

    def test_the_index_is_that_of_the_last_block_or_rollback(self, path: Path, caplog: pytest.LogCaptureFixture):
        path.write_bytes(BEFORE + remove("b") + untrack(2) + block("2") + rollback("1") + place("c", price="0"))
        append(path, block("3") + RESET)
        feed = open_feed(named(path), follow=False)
        index = feed.read()
        assert (asks(index), index.as_of, feed.rejected) == ({1: 10, 2: 10}, "3", 1)
        assert feed.problem == "its state is reset since line 11; waiting for the first block after its reset"
        assert f"{path} line 9 rejected: order 'c' has no liquidity" in caplog.text

    def test_an_unknown_state_is_a_problem_until_the_next_block(self, path: Path):
        path.write_bytes(BEFORE + remove("c") + place("c") + block("2"))
        feed = open_feed(named(path), follow=False)
        assert (asks(feed.read()), feed.rejected, feed.is_unknown) == ({1: 10, 2: 10}, 1, True)
        append(path, RESET + place("c") + block("2"))
        feed = open_feed(named(path), follow=False)
        assert (asks(feed.read()), feed.problem, feed.rejected) == ({1: 10}, None, 1)

    @pytest.mark.parametrize(("events", "records"), [(place("d"), "1 event"), (place("d") + remove("a"), "2 events")])
    def test_events_after_the_last_block_are_a_problem(self, path: Path, events: bytes, records: str):
        path.write_bytes(BEFORE + events)
        feed = open_feed(named(path), follow=False)
        assert asks(feed.read()) == {1: 10, 2: 10}
        assert (feed.problem, feed.is_unknown) == (f"ended while {records} waited for a block", True)


class TestNames:
    """Names with the prefix `orders:`."""

    @pytest.mark.parametrize("follow", [True, False])
    def test_a_missing_file_cannot_be_opened(self, path: Path, follow: bool):
        with pytest.raises(FeedError, match="cannot be opened: No such file or directory"):
            open_feed(named(path), follow=follow)

    def test_a_dash_names_standard_input(self):
        assert open_feed("orders:-").source == "standard input"
