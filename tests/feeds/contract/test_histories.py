"""Any history of a real medium, with its errors, against a dictionary (decisions 24, 27 and 31)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from market_index import Freshness, OrderBook, Pair
from market_index_feeds import Version
from tests.feeds.contract.media import law
from tests.feeds.contract.medium import Can, Fence, Medium, Reader, content
from tests.feeds.made_up import book, pair
from tests.waiting import WITHOUT_SHRINKING

PAIRS: Final = [pair(number) for number in range(1, 5)]
TIME: Final = datetime(2026, 11, 22, 4, 17, 3, 123000, tzinfo=UTC)

numbers = st.integers(1, 4)
contents = st.dictionaries(numbers, st.integers(1, 9), min_size=1, max_size=3).map(
    lambda found: [book(number, spot) for number, spot in found.items()]
)
retracted = st.lists(st.sampled_from(PAIRS), max_size=2)


class History(RuleBasedStateMachine):
    """A medium that changes, and a reader that follows it. `books`, `invalid` and `as_of` are the model."""

    medium: Medium

    def __init__(self) -> None:
        super().__init__()
        self.books: dict[Pair, OrderBook] = {}
        self.invalid: set[Pair | None] = set()
        self.as_of: str | None = None
        self.writes = 0
        if self.can(Can.BLANK):
            self.medium.reset()
        self.copied: tuple[dict[Pair, OrderBook], str | None] | None = None
        self.reader = Reader(self.medium.feed())
        # The contents since the reader was last asked, each with its as_of. A version is one of them, never a mixture.
        self.states: list[tuple[dict[Pair, OrderBook], str | None]] = []
        # The books that a reader keeps as the same objects, if they stay equal.
        self.kept: dict[Pair, OrderBook] = {}

    def can(self, capability: Can) -> bool:
        return capability in self.medium.can

    def next_freshness(self) -> Freshness:
        self.writes += 1
        self.as_of = f"slot {self.writes}"
        return Freshness(self.as_of)

    def changed(self, books: Iterable[OrderBook], *, is_whole: bool = False, gone: Iterable[Pair] = ()) -> None:
        """Apply a change to the model."""
        by_pair = {one.pair: one for one in books}
        kept = {} if is_whole else {one: found for one, found in self.books.items() if one not in gone}
        self.invalid = set() if is_whole else self.invalid - by_pair.keys() - set(gone)
        self.books = kept | by_pair
        self.states.append((self.books, None if self.invalid else self.as_of))

    def read(self, *fences: Fence) -> None:
        """Read up to the fences, and compare each version with the model."""
        for version in self.reader.until(*fences):
            assert self.shown(version) in [self.known(state) for state in self.states]
        equal = {one for one, book in self.kept.items() if all(books.get(one) == book for books, _ in self.states)}
        self.states = self.states[-1:]
        version = self.reader.versions[-1]
        assert (self.reader.books, set(version.invalid)) == (self.books, self.invalid)
        assert self.shown(version) == self.known(self.states[0])
        if "Order" not in type(self.medium).__name__:  # these compute their books
            assert all(self.reader.books[one] is self.kept[one] for one in equal)
        self.kept = self.reader.books

    def shown(self, version: Version) -> tuple[dict[Pair, OrderBook], str | None]:
        return self.known((dict(content(version.index)), version.index.as_of))

    def known(self, state: tuple[dict[Pair, OrderBook], str | None]) -> tuple[dict[Pair, OrderBook], str | None]:
        """Return a state as the medium can show it."""
        return state if self.can(Can.AS_OF) else (state[0], None)

    @initialize(books=contents)
    def begin(self, books: list[OrderBook]) -> None:
        self.write([(books, [])])

    @rule(changes=st.lists(st.tuples(contents, retracted), min_size=1, max_size=3))
    def write(self, changes: list[tuple[list[OrderBook], list[Pair]]]) -> None:
        """Several changes, which a reader that is slow sees as one or as some of them."""
        before, fences = len(self.reader.versions), list[Fence]()
        for books, pairs in changes:
            gone = tuple({*pairs} & self.books.keys() - {one.pair for one in books})
            fences.append(self.medium.write(*books, retract=gone, freshness=self.next_freshness()))
            self.changed(books, gone=gone)
        self.read(fences[-1])
        assert len(self.reader.versions) - before <= self.medium.most_unread

    @rule()
    def retract_all(self) -> None:
        fence = self.medium.write(retract=tuple(self.books), freshness=self.next_freshness())
        self.changed([], gone=tuple(self.books))
        self.read(fence)

    @precondition(lambda self: self.can(Can.REPLACE))
    @rule(books=contents)
    def replace(self, books: list[OrderBook]) -> None:
        fence = self.medium.replace(*books, freshness=self.next_freshness())
        self.changed(books, is_whole=True)
        self.read(fence)

    @precondition(lambda self: self.can(Can.PUBLISHED_AT))
    @rule()
    def publish_a_heartbeat(self) -> None:
        time = TIME + timedelta(seconds=self.writes)
        fence = self.medium.write(freshness=Freshness(self.next_freshness().as_of, time))
        self.changed([])
        self.read(fence)
        assert self.reader.index.published_at == time

    @precondition(lambda self: self.can(Can.NAMED))
    @rule(one=st.sampled_from(PAIRS), is_named=st.booleans())
    def spoil(self, one: Pair, *, is_named: bool) -> None:
        spoiled = one if is_named or not self.can(Can.UNNAMED) else None
        fence = self.medium.spoil(spoiled)
        self.invalid.add(spoiled)
        self.changed([])
        self.read(fence, lambda version: spoiled in version.invalid)

    @precondition(lambda self: self.can(Can.HIDE))
    @rule(books=contents)
    def hide(self, books: list[OrderBook]) -> None:
        """It cannot be read: the last version stays, exactly."""
        self.medium.hide()
        self.read(lambda _: str(self.reader.problem()).startswith("cannot be read: "))
        assert not self.reader.feed.health.is_unknown
        self.medium.show()
        self.write([(books, [])])
        assert self.reader.problem() is None

    @precondition(lambda self: self.can(Can.BLANK))
    @rule(books=contents)
    def reset(self, books: list[OrderBook]) -> None:
        """It is no version, and then it cannot be read: the last version stays, exactly."""
        self.medium.reset()
        if self.can(Can.STORE):
            self.medium.write()  # a heartbeat is no version
        self.read(lambda _: self.reader.feed.health.is_unknown)
        assert self.reader.problem() is not None
        if self.can(Can.HIDE):
            self.medium.hide()
            self.read(lambda _: not self.reader.feed.health.is_unknown)
            self.medium.show()
        self.books, self.invalid, self.kept = {}, set(), {}
        self.write([(books, [])])
        assert self.reader.problem() is None

    @rule()
    def check(self) -> None:
        """Nothing has changed."""
        assert {id(self.reader.pull()) for _ in range(3)} == {id(self.reader.versions[-1])}

    @precondition(lambda self: self.can(Can.COPY) and not self.invalid)
    @rule()
    def copy(self) -> None:
        self.medium.copy()
        self.copied = self.books, self.as_of

    @precondition(lambda self: self.copied is not None)
    @rule()
    def restore(self) -> None:
        """An earlier copy is renamed over it."""
        assert self.copied is not None
        fence = self.medium.restore()
        (self.books, self.as_of), self.copied = self.copied, None
        self.changed([])
        self.invalid.clear()
        self.states.append((self.books, self.as_of))
        self.read(fence)

    @precondition(lambda self: self.can(Can.MANY) and not self.invalid)
    @rule(is_restarted=st.booleans())
    def read_late(self, *, is_restarted: bool) -> None:
        late = Reader(self.medium.feed())
        late.pull()
        assert (late.books, late.index.freshness) == (self.books, self.reader.index.freshness)
        early, late = (self.reader, late) if is_restarted else (late, self.reader)
        early.__exit__()
        self.reader, self.kept = late, {}

    def teardown(self) -> None:
        self.reader.__exit__()


SLOW: Final = {"PipedLines", "SqliteFile", "NatsBucket", "LedgerOrders", "PolledService"}
"""A pipe cannot begin anew, either."""


@law(Can.LIVE)
@pytest.mark.parametrize("histories", [4, pytest.param(30, marks=pytest.mark.thorough)])
@pytest.mark.decision(24)
@pytest.mark.decision(27)
@pytest.mark.decision(31)
def test_any_history_is_read_as_it_was_written(medium: Medium, histories: int):
    examples = 1 if type(medium).__name__ in SLOW else histories
    machine = type("Read", (History,), {"medium": medium})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=20, phases=WITHOUT_SHRINKING)
    )
