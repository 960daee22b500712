"""The visible state of the orders, compared with a model of plain dictionaries."""

from __future__ import annotations

from fractions import Fraction

import pytest

from market_index import Freshness, MarketIndex, RestingOrders
from market_index_feeds.line_content import RejectedLine, Reported
from market_index_feeds.line_source import MAX_LINE_BYTES, LineBatch, LineCutter
from market_index_feeds.orders.blocks import Blocks, Phase
from tests.market_index_feeds.made_up import pair
from tests.market_index_feeds.orders.lines import RESET, block, event, place, remove, rollback, spot, untrack
from tests.market_index_feeds.orders.model import Book, books_of

SNEK = str(pair(1).base)


def fail(*_: object, **__: object) -> None:
    raise RuntimeError("a defect")


class Reader:
    """Blocks that read lines, and the resulting state of a feed: books and rejected records."""

    def __init__(self, history: int = 3) -> None:
        self.blocks = Blocks(history)
        self.index = MarketIndex()
        self.records: set[object] = set()
        self.as_of: str | None = None
        self._cutter = LineCutter()

    def read(self, *lines: bytes, is_end: bool = False) -> list[Reported]:
        """Read lines as one batch, and deliver the visible changes."""
        batch = LineBatch(list(self._cutter.feed(b"".join(lines))), self._cutter.unfinished, 0, is_end=is_end)
        reported = list(self.blocks.read(batch))
        self.deliver()
        return reported

    def deliver(self) -> None:
        changes = self.blocks.changes()
        self.index = self.index.without(*changes.removed).with_books(*changes.books)
        self.records.difference_update(changes.resolved)
        self.records.update(one.record for one in changes.rejected)
        assert changes.is_publication == (changes.freshness is not None)
        self.as_of = self.as_of if changes.freshness is None else changes.freshness.as_of
        self.blocks.deliver()

    @property
    def shown(self) -> dict[int, Book]:
        return books_of(self.index)


def amounts(reader: Reader, number: int = 1) -> dict[int, int]:
    """The asks of a pair: price -> amount."""
    return {int(price): amount for price, amount in reader.shown[number][1].items()}


class TestBlocks:
    """Effects of a block."""

    def test_events_are_visible_from_their_block_on(self):
        reader = Reader()
        assert reader.read(RESET, place("a"), place("b", amount=5, price="3"), spot(2, "0.5")) == []
        assert (reader.shown, reader.blocks.pending) == ({}, 3)
        assert reader.read(block("slot 1")) == [Freshness("slot 1")]
        assert reader.shown == {1: ({}, {2: 10, 3: 5}, None), 2: ({}, {}, Fraction(1, 2))}
        assert (reader.as_of, reader.blocks.pending) == ("slot 1", 0)

    def test_placing_an_id_again_replaces_the_order(self):
        reader = Reader()
        reader.read(RESET, place("a"), place("b"), place("b", amount=5), block("1"), place("a", amount=3))
        assert amounts(reader) == {2: 15}
        reader.read(block("2"))
        assert amounts(reader) == {2: 8}

    def test_an_order_can_be_removed_and_placed_in_one_block_in_any_order(self):
        reader = Reader()
        reader.read(RESET, place("a"), block("1"), remove("a"), place("a", amount=1), remove("a"), place("a", amount=2))
        reader.read(place("b"), remove("b"), block("2"))
        assert (amounts(reader), reader.blocks.phase) == ({2: 2}, Phase.KNOWN)

    def test_a_block_without_events_is_a_heartbeat(self):
        reader = Reader()
        reader.read(RESET, place("a"), block("1"))
        assert reader.read(block("2")) == [Freshness("2")]
        assert (amounts(reader), reader.as_of) == ({2: 10}, "2")

    def test_a_pair_is_tracked_until_it_is_untracked(self):
        reader = Reader()
        reader.read(RESET, place("a"), spot(2, "1"), block("1"), remove("a"), block("2"))
        assert set(reader.shown) == {1, 2}
        reader.read(spot(1, "7"), untrack(1), untrack(9), untrack(2), place("b", 2))
        assert (set(reader.shown), reader.blocks.pending) == ({1, 2}, 5)
        reader.read(block("3"))
        assert reader.shown == {2: ({}, {2: 10}, None)}

    def test_the_pair_of_an_order_that_is_removed_before_its_block_is_tracked(self):
        reader = Reader()
        reader.read(RESET, spot(3, "7"), block("1"), place("a"), remove("a"), place("b", 2), place("b", 3), block("2"))
        assert reader.shown == {1: ({}, {}, None), 2: ({}, {}, None), 3: ({}, {2: 10}, Fraction(7))}
        reader.read(place("c", 4), place("c", 5), spot(4, "6"), remove("b"), untrack(1), untrack(3), block("3"))
        assert reader.shown == {2: ({}, {}, None), 4: ({}, {}, Fraction(6)), 5: ({}, {2: 10}, None)}

    def test_a_reset_forgets_all_at_its_block(self):
        reader = Reader()
        reader.read(RESET, place("a"), place("b", 2), block("1"), RESET, place("c", 2, amount=1))
        assert (set(reader.shown), reader.blocks.phase) == ({1, 2}, Phase.RESETTING)
        assert reader.blocks.problem == "its state is reset since line 5; waiting for the first block after its reset"
        assert reader.read(block("1")) == [Freshness("1")]
        assert reader.shown == {2: ({}, {2: 1}, None)}


class TestImpossibleOrders:
    """Anyone can place an impossible order on the ledger. It must not stop a market."""

    @pytest.mark.parametrize(
        "odd",
        [
            event(place="a", base="ADA", quote="ADA", offered="base", amount=1, price="1"),
            event(place="a", base="00:", quote="ADA", offered="base", amount=1, price="1"),
            place("a", amount=-1),
            place("a", price="0"),
        ],
    )
    def test_it_replaces_its_order_and_can_be_replaced_removed_and_rolled_back(self, odd: bytes):
        reader = Reader()
        reader.read(RESET, place("a"), place("b"), block("1"), odd, block("2"))
        assert (reader.blocks.problem, reader.shown) == (None, {1: ({}, {2: 10}, None)})
        reader.read(place("a", amount=7), block("3"), odd, block("4"), remove("a"), block("5"))
        assert (reader.blocks.problem, reader.shown) == (None, {1: ({}, {2: 10}, None)})
        reader.read(rollback("3"))
        assert reader.shown == {1: ({}, {2: 17}, None)}
        reader.read(rollback("2"), remove("a"), block("6"), remove("a"))
        assert "cannot remove order 'a': there is no such order" in str(reader.blocks.problem)

    def test_it_can_be_removed_in_the_block_that_places_it(self):
        reader = Reader()
        odd = event(place="a", base="ADA", quote="ADA", offered="base", amount=1, price="1")
        reader.read(RESET, odd, remove("a"), place("b"), block("1"))
        assert (reader.blocks.problem, reader.shown) == (None, {1: ({}, {2: 10}, None)})
        assert reader.blocks.changes().rejected == []


class TestRollbacks:
    """Effects of a rollback."""

    def test_a_rollback_is_visible_immediately_and_discards_events(self):
        reader = Reader()
        reader.read(RESET, place("a"), block("1"), place("b"), block("2"), place("c", 2), block("3"), place("d", 3))
        assert reader.read(rollback("1")) == [Freshness("1")]
        assert (reader.shown, reader.as_of) == ({1: ({}, {2: 10}, None)}, "1")
        reader.read(place("b", amount=1), block("2"))
        assert (amounts(reader), reader.as_of) == ({2: 11}, "2")

    def test_a_rollback_to_the_last_block_discards_events(self):
        reader = Reader()
        reader.read(RESET, place("a"), block("1"), remove("a"), untrack(1), rollback("1"), block("2"))
        assert amounts(reader) == {2: 10}

    @pytest.mark.parametrize("history", [0, 1, 3])
    def test_history_is_the_number_of_retained_blocks_before_the_last_one(self, history: int):
        reader = Reader(history)
        reader.read(RESET, *(line for number in range(9) for line in (place(f"{number}"), block(f"{number}"))))
        reader.read(rollback(f"{8 - history}"))
        assert (amounts(reader), reader.blocks.phase) == ({2: 10 * (9 - history)}, Phase.KNOWN)
        reader.read(rollback(f"{7 - history}"))
        assert (amounts(reader), reader.blocks.phase) == ({2: 10 * (9 - history)}, Phase.UNKNOWN)


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
            (
                place("c") + place("d") + b"".join(map(remove, "abcda")),
                "cannot remove order 'a': there is no such order",
            ),
            (
                place("c") * 4 + place("d", price="two"),
                "price: a ratio must be ASCII digits with an optional point or one slash, got 'two'",
            ),
            (place("c") + remove("c") + remove("c"), "cannot remove order 'c': there is no such order"),
            (untrack(1), f"{SNEK}/ADA must have no orders to be untracked, got 2"),
            (place("c", 2) + untrack(2), f"{pair(2)} must have no orders to be untracked, got 1"),
            (block("1"), "the text of a block must not repeat, got '1' again"),
            (rollback("3"), "block '3' must be retained for a rollback to it"),
            (RESET + place("c") + rollback("1"), "block '1' must be retained for a rollback to it"),
        ],
    )  # fmt: skip
    def test_a_malformed_or_inconsistent_line_keeps_the_last_block_until_a_reset(self, line: bytes, reason: str):
        reader = Reader()
        reader.read(*BEFORE)
        number = 5 + line.count(b"\n")
        assert reader.read(line) == [RejectedLine(number, reason)]
        lost = f"its state is unknown since line {number}: {reason}"
        assert (reader.blocks.phase, reader.blocks.problem) == (Phase.UNKNOWN, f"{lost}; waiting for a reset")
        assert reader.read(place("c"), b"nonsense\n", block("3"), rollback("1")) == []
        assert (amounts(reader), reader.as_of, reader.blocks.pending) == ({2: 20}, "2", 0)
        reader.read(RESET, place("d", amount=1))
        assert reader.blocks.problem == f"{lost}; waiting for the first block after its reset"
        assert (amounts(reader), reader.as_of) == ({2: 20}, "2")
        assert reader.read(block("1")) == [Freshness("1")]
        assert (amounts(reader), reader.as_of) == ({2: 1}, "1")
        assert reader.blocks.problem is None

    def test_a_malformed_reset_is_reported_but_the_first_reason_stays(self):
        reader = Reader()
        reader.read(*BEFORE, b"nonsense\n")
        problem = reader.blocks.problem
        assert reader.read(b'{"reset":1}\n') == [RejectedLine(7, "reset must be true, got 1")]
        assert reader.blocks.problem == problem

    def test_an_unexpected_error_makes_the_state_unknown(self, monkeypatch: pytest.MonkeyPatch):
        reader = Reader()
        reader.read(*BEFORE)
        with monkeypatch.context() as broken:
            broken.setattr(RestingOrders, "apply", fail)
            with pytest.raises(RuntimeError):
                reader.read(place("c"), block("3"))
        assert reader.blocks.problem == "its state is unknown since line 7: unexpected error; waiting for a reset"
        reader.read(block("4"))
        assert (amounts(reader), reader.as_of) == ({2: 20}, "2")

    def test_the_state_is_unknown_before_the_first_reset(self):
        reader = Reader()
        assert reader.blocks.problem == "its state is not known yet; waiting for a reset"
        assert reader.read(place("a"), block("1"), b"half a line\n") == []
        assert reader.read(b'{"reset":true}' + place("a")) != []
        assert reader.read(b'{"re\\u0073et":true}\n', block("1")) == [Freshness("1")]
        assert reader.shown == {}

    def test_an_order_with_the_id_reset_is_no_reset(self):
        reader = Reader()
        assert reader.read(place("reset"), block("1")) == []
        assert reader.blocks.phase is Phase.UNKNOWN

    def test_blank_lines_are_ignored(self):
        reader = Reader()
        reader.read(b"\n", RESET, b" \r\n", place("a"), b"\n", block("1"))
        assert amounts(reader) == {2: 10}

    def test_a_last_line_without_its_newline_is_rejected(self):
        reader = Reader()
        reader.read(*BEFORE)
        assert reader.read(block("3")[:-1], is_end=True) == [RejectedLine(6, "must end with a newline")]
        assert reader.as_of == "2"

    def test_an_unread_line_has_no_effect_before_its_block(self):
        assert not Blocks().reads_on
