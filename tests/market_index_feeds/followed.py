"""A state machine of random changes by two publishers. A reader must show the resulting content."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from market_index import Freshness, LiveIndex
from market_index_feeds import Receipt, Store, open_feed, open_store
from tests.market_index_feeds.made_up import book, pair, spots
from tests.waiting import eventually

NUMBERS = st.lists(st.integers(0, 5), max_size=4)
WHICH = st.integers(0, 1)


class Followed(RuleBasedStateMachine):
    """After each step the reader eventually shows the content of the model, and the absent pairs."""

    per_call = True

    def initialize(self, target: str) -> None:
        self.target = target
        self.model: dict[int, str] = {}
        # The pairs that the store lost, with the spots that the reader keeps.
        self.absent: dict[int, str] = {}
        # The pairs that were retracted last: the store says so, also after it was restored.
        self.retracted = frozenset[int]()
        self.is_complete = False
        self.published_at = datetime(2026, 11, 22, tzinfo=UTC)
        self.spot = 0
        self.revision = 0
        self.stores = [self.opened() for _ in range(2)]
        self.live = LiveIndex()
        self.feed = open_feed(target)
        self.feed.start(self.live)

    def opened(self) -> Store:
        return open_store(self.target)

    def books(self, numbers: list[int]) -> dict[int, str]:
        books = {}
        for number in numbers:
            self.spot += 1
            books[number] = str(self.spot)
        return books

    def store_all(self, books: dict[int, str]) -> None:
        self.model |= books
        self.retracted -= books.keys()
        self.absent = {number: spot for number, spot in self.absent.items() if number not in books}

    def drop(self, gone: set[int]) -> None:
        self.model = {number: spot for number, spot in self.model.items() if number not in gone}
        self.retracted |= gone

    def check(self, receipt: Receipt, changes: int, *, is_update: bool = True) -> None:
        """Check a receipt. A file has one revision per update, a bucket one per change and one for the freshness."""
        assert receipt.published + receipt.retracted == changes
        assert receipt.revision == self.revision + is_update * (1 if self.per_call else changes + 1)
        self.revision = receipt.revision

    @rule(numbers=NUMBERS, which=WHICH)
    def publish(self, numbers: list[int], which: int) -> None:
        books = self.books(numbers)
        receipt = self.stores[which].publish(*(book(*one) for one in books.items()))
        self.store_all(books)
        self.check(receipt, len(books), is_update=bool(books))

    @rule(numbers=NUMBERS, which=WHICH)
    def retract(self, numbers: list[int], which: int) -> None:
        gone = self.model.keys() & set(numbers)
        receipt = self.stores[which].retract(*map(pair, numbers))
        self.drop(gone)
        self.check(receipt, len(gone), is_update=bool(numbers))

    @rule(numbers=NUMBERS, retract=st.none() | NUMBERS, same=st.booleans(), which=WHICH)
    def replace(self, numbers: list[int], retract: list[int] | None, same: bool, which: int) -> None:
        books = self.books(numbers)
        if same:
            books |= {number: spot for number, spot in self.model.items() if number in books}
        gone = (self.model.keys() if retract is None else self.model.keys() & set(retract)) - books.keys()
        kept = self.model.keys() - gone - books.keys()
        # Different from the last one even within the same millisecond.
        self.published_at += timedelta(milliseconds=1)
        receipt = self.stores[which].replace(
            (book(*one) for one in books.items()),
            None if retract is None else list(map(pair, retract)),
            freshness=Freshness(None, self.published_at),
        )
        assert receipt.kept == set(map(pair, kept))
        new = [number for number, spot in books.items() if self.model.get(number) != spot]
        self.drop(gone)
        self.store_all(books)
        if retract is None:
            self.is_complete, self.absent = True, {}
        self.check(receipt, len(gone) + len(new))

    @rule(which=WHICH)
    def reopen(self, which: int) -> None:
        self.stores[which].close()
        self.stores[which] = self.opened()

    @rule()
    def read_from_the_start(self) -> None:
        self.feed.close()
        self.live, self.absent = LiveIndex(), {}
        self.feed = open_feed(self.target)
        self.feed.start(self.live)

    @invariant()
    def the_reader_shows_what_was_written(self) -> None:
        if hasattr(self, "feed"):
            eventually(lambda: spots(self.live) == self.absent | self.model)
            eventually(lambda: self.feed.revision == self.revision)
            eventually(lambda: self.feed.content.coverage.absent == set(map(pair, self.absent)))

    def teardown(self) -> None:
        if hasattr(self, "feed"):
            self.feed.close()
            for store in self.stores:
                store.close()
