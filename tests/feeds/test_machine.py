"""Any history of a source, and of the target of its mirror, against a small model (decisions 24, 27, 31 and 34)."""

from __future__ import annotations

import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from market_index import Freshness, OrderBook, Pair
from market_index_feeds import Feed, FeedError, NoVersion, mirror
from market_index_feeds.errors import reason_of
from tests.feeds.contract.medium import without_waits
from tests.feeds.made_up import pair
from tests.feeds.scripted import MemoryStore, SteppedSource
from tests.waiting import WITHOUT_SHRINKING

PAIRS = st.sampled_from([pair(number) for number in range(1, 5)])
SPOTS = st.integers(1, 3)
TOO_LARGE = 3
"""A book with this spot price exceeds the limit of the target."""

WRITABLE = st.integers(1, TOO_LARGE - 1)
"""The spot prices of books that another program can write into the target."""


class Mirrored(RuleBasedStateMachine):
    """A source, its feed, and a target. The model is `read` and `written`, and their as_of."""

    @initialize(spots=st.dictionaries(PAIRS, SPOTS, min_size=1), other=st.dictionaries(PAIRS, WRITABLE))
    def start(self, spots: dict[Pair, int], other: dict[Pair, int]) -> None:
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(sys.modules["market_index_feeds.mirror"], "CHECK_SECONDS", 0)
        self.source, self.target = SteppedSource(), MemoryStore()
        self.source.books = {one: book_of(one, spot) for one, spot in spots.items()}
        self.target.update([book_of(one, spot) for one, spot in other.items()])
        self.target.too_large = TOO_LARGE
        self.read: dict[Pair, OrderBook] = {}
        self.read_as_of: str | None = None
        self.written: dict[Pair, OrderBook] = dict(self.target.index)
        self.written_as_of: str | None = None
        self.problem: tuple[str | None, bool] = (None, False)
        self.seen: set[Pair] = set()
        self.feed = without_waits(Feed(self.source))
        self.source.read_in_thread(lambda: mirror(self.feed, lambda: self.target))
        self.check()

    @rule(one=PAIRS, spot=SPOTS, as_of=st.sampled_from(["slot 1", "slot 2", None]))
    def publish(self, one: Pair, spot: int, as_of: str | None) -> None:
        self.source.publish(book_of(one, spot), as_of=as_of)
        self.source.invalid.discard(one)

    @rule(one=PAIRS)
    def retract(self, one: Pair) -> None:
        self.source.books.pop(one, None)
        self.source.invalid.discard(one)

    @rule(one=PAIRS | st.none())
    def spoil(self, one: Pair | None) -> None:
        self.source.invalid.add(one)
        if one is not None:
            self.source.books.pop(one, None)

    @rule()
    def repair(self) -> None:
        self.source.invalid.clear()

    @rule(error=st.sampled_from([FeedError("it is away"), OSError(5, "it is broken"), ValueError("a defect")]))
    def fail(self, error: Exception) -> None:
        self.source.error = error
        self.check()
        self.agrees()
        self.source.error = None

    @rule()
    def recreate(self) -> None:
        self.source.no_version = NoVersion("contains nothing")
        self.check()
        self.agrees()
        self.source.no_version = None

    @rule(one=PAIRS, spot=WRITABLE | st.none())
    def write_by_another_program(self, one: Pair, spot: int | None) -> None:
        target = self.target
        failure, target.failure, target.too_large = target.failure, None, None
        target.update([] if spot is None else [book_of(one, spot)], [one], Freshness("of another"))
        target.failure, target.too_large = failure, TOO_LARGE
        self.written, self.written_as_of = dict(target.index), "of another"

    @rule(failure=st.sampled_from(["failing", "lost", "written"]), one=PAIRS, spot=SPOTS)
    def fail_to_write(self, failure: str, one: Pair, spot: int) -> None:
        self.target.failure = failure
        self.check()
        self.agrees()
        self.publish(one, spot, "slot 3")
        self.check()
        self.agrees()
        self.target.failure = None

    @rule()
    def check(self) -> None:
        source, target = self.source, self.target
        source.step()
        if source.error is not None:
            kind = "unexpected error" if isinstance(source.error, ValueError) else "cannot be read"
            self.problem = f"{kind}: {reason_of(source.error)}", False
        elif source.no_version is not None:
            self.problem = source.no_version.reason, True
        elif not source.books:
            self.problem = f"contains no {'valid ' if source.invalid else ''}order book", True
        else:
            stays = set[Pair | None](self.read) if None in source.invalid else source.invalid
            self.read = {one: found for one, found in self.read.items() if one in stays} | source.books
            self.read_as_of = None if source.invalid else source.freshness.as_of
            self.invalid = frozenset(source.invalid)
            self.seen |= self.read.keys()
            self.problem = (None, False)
        if target.failure in {"failing", "lost"}:
            return
        removed = self.written.keys() - self.read.keys()
        removed = removed & self.seen if self.invalid else removed
        too_large = [one for one, found in self.read.items() if found.spot == TOO_LARGE]
        left_out = {one for one in too_large if self.written.get(one) != self.read[one]}
        kept = {one: found for one, found in self.written.items() if one not in removed}
        self.written = kept | {one: found for one, found in self.read.items() if one not in left_out}
        self.written_as_of = None if left_out else self.read_as_of

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "feed") or self.feed.version is None:
            return
        version, target = self.feed.version, self.target.index
        assert (dict(version.index), version.index.as_of, version.invalid) == (self.read, self.read_as_of, self.invalid)
        assert (dict(target), target.as_of) == (self.written, self.written_as_of)
        assert (self.feed.health.problem, self.feed.health.is_unknown) == self.problem

    def teardown(self) -> None:
        if hasattr(self, "source"):
            self.source.end()
            self.patches.undo()


def book_of(one: Pair, spot: int) -> OrderBook:
    return OrderBook(one, spot=str(spot))


TestMirrored = Mirrored.TestCase
TestMirrored.settings = settings(max_examples=200, stateful_step_count=20, phases=WITHOUT_SHRINKING)
