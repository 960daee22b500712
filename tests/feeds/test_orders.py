"""The visible state of orders, and the feed of their events."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

from market_index import LiveIndex, Order, OrderBook, Pair, Side
from market_index.stateful import Offer, indexer_machine
from market_index_feeds import Feed, FeedError, open_feed
from market_index_feeds.lines import MAX_LINE_BYTES, LineCutter
from market_index_feeds.orders import Blocks, Phase
from tests.feeds.contract.medium import Reader
from tests.feeds.event_lines import RESET, block, event, place, remove, rollback, spot, untrack
from tests.feeds.made_up import pair
from tests.waiting import eventually

SNEK = str(pair(1).base)

Book: TypeAlias = tuple[dict[Any, int], dict[Any, int], Any]
"""Bids, asks and the spot price; prices are equal if their numbers are."""


class Lines:
    """Blocks that read lines, and what they reject."""

    def __init__(self, history: int = 3) -> None:
        self.rejected: list[tuple[str, str]] = []
        self.blocks = Blocks(history, lambda place, reason: self.rejected.append((place, str(reason))))
        self._cutter = LineCutter()

    def read(self, *lines: bytes) -> None:
        for line in self._cutter.cut(b"".join(lines)):
            self.blocks.read(line)

    def problem(self) -> str | None:
        """Why the state is not known."""
        return self.blocks.problem

    @property
    def shown(self) -> dict[int, Book]:
        return {
            int.from_bytes(one.base.policy_id): (
                {Fraction(level.price): level.accumulated_liquidity for level in book.bids},
                {Fraction(level.price): level.accumulated_liquidity for level in book.asks},
                None if book.spot is None else Fraction(book.spot),
            )
            for one, book in self.blocks.visible.index.items()
        }

    @property
    def as_of(self) -> str | None:
        return self.blocks.visible.index.as_of

    def amounts(self, number: int = 1) -> dict[int, int]:
        """The asks of a pair: price -> amount."""
        return {int(price): amount for price, amount in self.shown[number][1].items()}


class TestBlocks:
    """Effects that the state machine below does not cover."""

    def test_the_pair_of_an_order_that_is_removed_before_its_block_is_tracked(self):
        lines = Lines()
        lines.read(RESET, spot(3, "7"), block("1"), place("a"), remove("a"), place("b", 2), place("b", 3), remove("b"))
        lines.read(place("c", 4), remove("c"), spot(4, "5"), block("2"))
        assert lines.shown == {1: ({}, {}, None), 2: ({}, {}, None), 3: ({}, {}, Fraction(7)), 4: ({}, {}, Fraction(5))}

    def test_a_reset_forgets_all_at_its_block(self):
        lines = Lines()
        lines.read(RESET, place("a"), place("b", 2), block("1"), RESET, place("c", 2, amount=1))
        assert (set(lines.shown), lines.blocks.phase) == ({1, 2}, Phase.RESETTING)
        assert lines.blocks.problem == "is reset since line 5; waiting for the first block after its reset"
        lines.read(block("1"))
        assert lines.shown == {2: ({}, {2: 1}, None)}

    @pytest.mark.parametrize("history", [0, 1, 3])
    def test_history_is_the_number_of_retained_blocks_before_the_last_one(self, history: int):
        lines = Lines(history)
        lines.read(RESET, *(line for number in range(9) for line in (place(f"{number}"), block(f"{number}"))))
        lines.read(rollback(f"{8 - history}"))
        assert (lines.amounts(), lines.blocks.phase) == ({2: 10 * (9 - history)}, Phase.KNOWN)
        lines.read(rollback(f"{7 - history}"))
        assert (lines.amounts(), lines.blocks.phase) == ({2: 10 * (9 - history)}, Phase.UNKNOWN)


class TestImpossibleOrders:
    """Anyone can place an impossible order on the ledger. It must not stop a market."""

    @pytest.mark.parametrize(
        "odd",
        [
            event(place="a", base="ADA", quote="ADA", offered="base", amount=1, price="1"),
            event(place="a", base="00:", quote="ADA", offered="base", amount=1, price="1"),
            event(place="a", base=f"{'00' * 28}:{'00' * 33}", quote="ADA", offered="base", amount=1, price="1"),
            event(place="a", base=f"{'AB' * 28}:", quote=f"{'ab' * 28}:", offered="base", amount=1, price="1"),
            place("a", amount=-1),
            place("a", price="0"),
        ],
    )
    def test_it_replaces_its_order_and_can_be_replaced_removed_and_rolled_back(self, odd: bytes):
        lines = Lines()
        lines.read(RESET, place("a"), place("b"), block("1"), odd, block("2"))
        assert (lines.blocks.problem, lines.shown) == (None, {1: ({}, {2: 10}, None)})
        assert [place for place, _ in lines.rejected] == ["line 5"]
        lines.read(place("a", amount=7), block("3"), odd, block("4"), remove("a"), block("5"))
        assert (lines.blocks.problem, lines.shown) == (None, {1: ({}, {2: 10}, None)})
        lines.read(rollback("3"))
        assert lines.shown == {1: ({}, {2: 17}, None)}
        lines.read(rollback("2"), remove("a"), block("6"))
        assert (lines.blocks.problem, lines.shown) == (None, {1: ({}, {2: 10}, None)})
        lines.read(RESET, place("b"), block("1"), remove("a"))
        assert "cannot remove order 'a': there is no such order" in str(lines.blocks.problem)

    def test_an_order_without_a_pair_outlives_changes_of_others(self):
        lines = Lines()
        odd = event(place="a", base="ADA", quote="ADA", offered="base", amount=1, price="1")
        lines.read(RESET, odd, block("1"), place("b"), block("2"), remove("b"), untrack(1), remove("a"), block("3"))
        assert (lines.problem(), lines.shown) == (None, {})

    def test_only_retained_blocks_remember_an_order_without_a_pair(self):
        lines = Lines()
        lines.read(RESET)
        for number in range(20):
            odd = event(place=f"a{number}", base="ADA", quote="ADA", offered="base", amount=1, price="1")
            lines.read(odd, block(f"{number}"), remove(f"a{number}"))
        kept = {order_id for state in lines.blocks._blocks.values() for order_id in state.unpaired}
        assert kept == {f"a{number}" for number in range(16, 20)}

    def test_the_reason_is_logged(self):
        lines = Lines()
        lines.read(RESET, place("a", price="1/0"), spot(2, "-1"), block("1"))
        assert lines.rejected == [
            ("line 2", "order 'a' has no liquidity: a ratio must have a denominator above 0, got '1/0'"),
            ("line 3", f"{pair(2)} has no spot price: a ratio must be above 0, got '-1'"),
        ]
        assert lines.shown == {1: ({}, {}, None), 2: ({}, {}, None)}


BEFORE = (RESET, place("a"), block("1"), place("b"), block("2"))


class TestUnknown:
    """Lines that make the state unknown, and lines that are read afterwards."""

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b"nonsense\n", "must be JSON, but is not at character 0: Expecting value: 'nonsense'"),
            (b"x" * (MAX_LINE_BYTES + 1) + b"\n", f"must have at most {MAX_LINE_BYTES} bytes"),
            (remove("c"), "cannot remove order 'c': there is no such order"),
            (remove("a") + remove("a"), "cannot remove order 'a': there is no such order"),
            (place("c") + remove("c") + remove("c"), "cannot remove order 'c': there is no such order"),
            (untrack(1), f"{SNEK}/ADA must have no orders to be untracked, got 2"),
            (place("c", 2) + untrack(2), f"{pair(2)} must have no orders to be untracked, got 1"),
            (block("1"), "the text of a block must not repeat, got '1' again"),
            (rollback("3"), "block '3' must be retained for a rollback to it"),
            (RESET + place("c") + rollback("1"), "block '1' must be retained for a rollback to it"),
        ],
    )
    def test_a_malformed_or_inconsistent_line_keeps_the_last_block_until_a_reset(self, line: bytes, reason: str):
        lines = Lines()
        lines.read(*BEFORE, line)
        number = 5 + line.count(b"\n")
        assert lines.rejected == [(f"line {number}", reason)]
        lost = f"has an unknown state since line {number}: {reason}"
        assert (lines.blocks.phase, lines.blocks.problem) == (Phase.UNKNOWN, f"{lost}; waiting for a reset")
        lines.read(place("c"), b"nonsense\n", block("3"), rollback("1"))
        assert (lines.amounts(), lines.as_of, lines.blocks.pending, len(lines.rejected)) == ({2: 20}, "2", 0, 1)
        lines.read(RESET, place("d", amount=1))
        assert lines.blocks.problem == f"{lost}; waiting for the first block after its reset"
        assert (lines.amounts(), lines.as_of) == ({2: 20}, "2")
        lines.read(block("1"))
        assert (lines.amounts(), lines.as_of, lines.problem()) == ({2: 1}, "1", None)

    def test_a_malformed_reset_is_reported_but_the_first_reason_stays(self):
        lines = Lines()
        lines.read(*BEFORE, b"nonsense\n", b'{"reset":1}\n')
        assert lines.rejected[1:] == [("line 7", "reset must be true, got 1")]
        assert (lines.problem() or "").startswith("has an unknown state since line 6: must be JSON")

    def test_lines_before_the_first_reset_are_ignored(self):
        lines = Lines()
        assert (lines.problem() or "").startswith("contains no reset (")
        lines.read(place("reset"), block("1"), b"half a line\n", b'{"re\\u0073et":true}\n', b" \r\n", block("1"))
        assert (lines.problem(), lines.as_of, len(lines.rejected), len(lines.shown)) == (None, "1", 0, 0)


HISTORY = 3


class FedIndexer:
    """The lines that a producer writes for each step."""

    def __init__(self) -> None:
        self._lines = Lines(HISTORY)
        self._write(reset=True)

    def place(self, order_id: str, offer: Offer) -> None:
        price = f"{offer.price.numerator}/{offer.price.denominator}"
        offered = "base" if offer.offered == offer.pair.base else "quote"
        self._write(offer.pair, place=order_id, offered=offered, amount=str(offer.amount), price=price)

    def remove(self, order_id: str) -> None:
        self._write(remove=order_id)

    def set_spot(self, pair: Pair, spot: Decimal | None) -> None:
        self._write(pair, spot=None if spot is None else format(spot, "f"))

    def untrack(self, pair: Pair) -> None:
        self._write(pair, untrack=True)

    def commit(self, block: str) -> None:
        self._write(block=block)

    def roll_back(self, block: str) -> None:
        self._write(rollback=block)

    def order_books(self) -> Mapping[Pair, OrderBook]:
        assert self._lines.blocks.phase is not Phase.UNKNOWN
        return self._lines.blocks.visible.index

    def _write(self, pair: Pair | None = None, **event: object) -> None:
        if pair is not None:
            event |= {"base": str(pair.base), "quote": str(pair.quote)}
        self._lines.read(json.dumps(event).encode() + b"\n")


TestFedIndexer = indexer_machine(FedIndexer, max_history=HISTORY).TestCase
TestFedIndexer.settings = settings(max_examples=20)


# Feeds


def events_in(folder: Path, *lines: bytes) -> Path:
    path = folder / "events.ndjson"
    path.write_bytes(b"".join(lines))
    return path


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(lines))


def test_the_orders_are_those_behind_the_index(tmp_path: Path):
    path = events_in(tmp_path, RESET, place("a"), block("1"))
    live = LiveIndex()
    with open_feed(f"orders:{path}") as feed:
        feed.start(live)
        first = feed.version
        assert first is not None
        assert first.orders is not None
        assert first.orders.index is first.index is live.current
        assert dict(first.orders) == {"a": Order(pair(1), Side.ASK, "2", 10)}
        append(path, place("b", price="3"), block("2"))
        eventually(lambda: live.current.as_of == "2")
        second = feed.version
        assert second is not None
        assert second.orders is not None
        assert second.orders["b"] == Order(pair(1), Side.ASK, "3", 10)


def test_a_contradiction_is_a_problem_until_the_next_reset(tmp_path: Path):
    path = events_in(tmp_path, RESET, place("a"), block("1"))
    with Reader(open_feed(f"orders:{path}")) as reader:
        before = reader.pull()
        append(path, remove("z"), block("2"))
        reader.until(lambda _: reader.feed.health.is_unknown)
        assert reader.pull() is before
        assert "cannot remove order 'z': there is no such order; waiting for a reset" in str(reader.problem())
        append(path, RESET, place("b"), block("1"))
        reader.until(lambda version: version is not before)
        assert (reader.problem(), reader.feed.health.rejected) == (None, 1)


@pytest.mark.decision(31)
@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("wrong", [remove("z"), b"nonsense\n", RESET])
def test_the_last_block_before_a_wrong_line_is_the_content_at_every_start(
    tmp_path: Path, wrong: bytes, *, follow: bool
):
    path = events_in(tmp_path, RESET, place("a"), block("1"), place("b"), wrong, place("c"))
    with Reader(open_feed(f"orders:{path}", follow=follow)) as reader:
        assert reader.pull().index.as_of == "1"
        assert list(reader.versions[0].orders or ()) == ["a"]
        assert reader.problem() == reader.versions[0].problem
        assert "waiting for " in str(reader.problem())
        with Reader(open_feed(f"orders:{path}", follow=follow)) as worker:
            assert (worker.pull().index.as_of, worker.problem()) == ("1", reader.problem())
        if follow:
            reader.until(lambda _: reader.feed.health.is_unknown)
            append(path, RESET, place("b"), block("2"))
            reader.until(lambda version: version.index.as_of == "2")
            assert reader.problem() is None
    assert open_feed(f"orders:{path}", follow=follow).read().as_of == ("2" if follow else "1")


@pytest.mark.decision(31)
def test_the_last_block_before_a_wrong_line_of_a_pipe_is_its_content(tmp_path: Path):
    os.mkfifo(path := tmp_path / "events")
    pipe = os.open(path, os.O_RDWR)  # also for reading, so that opening it does not wait for a reader
    with Reader(open_feed(f"orders:{path}")) as reader:
        os.write(pipe, b"".join([RESET, place("a"), block("1"), b"nonsense\n", place("c"), block("2")]))
        assert (reader.pull().index.as_of, list(reader.versions[0].orders or ())) == ("1", ["a"])
        assert "waiting for a reset" in str(reader.problem())
        os.write(pipe, b"".join([RESET, block("3")]))
        reader.until(lambda version: version.index.as_of == "3")
        assert reader.problem() is None
    os.close(pipe)


def test_a_line_without_its_newline_is_named(tmp_path: Path):
    path = events_in(tmp_path, RESET, place("a"), block("1")[:-1])
    with pytest.raises(FeedError, match=r"first block after its reset; line 3 has no newline yet$"):
        open_feed(f"orders:{path}").read()


@pytest.mark.decision(26)
def test_a_saturated_level_is_logged_once_per_pair_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = events_in(tmp_path, RESET, place("a", amount=2**64), block("1"))
    with Reader(open_feed(f"orders:{path}")) as reader:
        reader.pull()
        assert reader.feed.health.saturated_levels == 1
        append(path, place("b", amount=2**70, price="3"), block("2"))
        reader.until(lambda version: version.index.as_of == "2")
        assert reader.feed.health.saturated_levels == 2
        append(path, remove("a"), remove("b"), block("3"))
        reader.until(lambda version: version.index.as_of == "3")
        assert reader.feed.health.saturated_levels == 0
    (message,) = [message for message in caplog.messages if "2^64-1" in message]
    assert str(pair(1)) in message


def test_a_file_that_is_read_once_reports_events_without_a_block(tmp_path: Path):
    path = events_in(tmp_path, RESET, place("a"), block("1"), place("b"))
    with Reader(open_feed(f"orders:{path}", follow=False)) as reader:
        assert reader.end() == "ended while events waited for a block (events: 1)"
        assert reader.index.as_of == "1"
    append(path, block("2"))
    with Reader(open_feed(f"orders:{path}", follow=False)) as reader:
        assert reader.end() == "has ended"
        assert reader.index.as_of == "2"


def test_order_books_are_no_events(tmp_path: Path):
    path = events_in(tmp_path, b'{"base":"ADA","quote":"%s","spot":null,"bids":[],"asks":[]}\n' % SNEK.encode())
    feed: Feed = open_feed(f"orders:{path}")
    with pytest.raises(FeedError, match=r"contains no reset \(if it has order books, omit orders: before its name"):
        feed.read()
    path.write_bytes(RESET + path.read_bytes())
    with pytest.raises(FeedError, match="an order book: omit orders: before the name of its file"):
        open_feed(f"orders:{path}").read()
