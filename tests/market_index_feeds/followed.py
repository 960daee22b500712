"""A state machine of random changes by two publishers. A reader must show the resulting content."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from market_index import LiveIndex
from market_index_feeds import Receipt, Store, open_feed, open_store
from tests.market_index_feeds.made_up import book, pair, spots
from tests.waiting import eventually

NUMBERS = st.lists(st.integers(0, 5), max_size=4)
WHICH = st.integers(0, 1)


class Followed(RuleBasedStateMachine):
    """After each step the reader eventually shows the content of the model."""

    per_call = True

    def initialize(self, target: str) -> None:
        self.target = target
        self.model: dict[int, str] = {}
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

    def check(self, receipt: Receipt, changes: int, *, is_update: bool = True) -> None:
        """Check a receipt. A file has one revision per update, a bucket one per change and one for the freshness."""
        assert receipt.published + receipt.retracted == changes
        assert receipt.revision == self.revision + is_update * (1 if self.per_call else changes + 1)
        self.revision = receipt.revision

    @rule(numbers=NUMBERS, which=WHICH)
    def publish(self, numbers: list[int], which: int) -> None:
        books = self.books(numbers)
        receipt = self.stores[which].publish(*(book(*one) for one in books.items()))
        self.model |= books
        self.check(receipt, len(books), is_update=bool(books))

    @rule(numbers=NUMBERS, which=WHICH)
    def retract(self, numbers: list[int], which: int) -> None:
        gone = self.model.keys() & set(numbers)
        receipt = self.stores[which].retract(*map(pair, numbers))
        for number in gone:
            del self.model[number]
        self.check(receipt, len(gone), is_update=bool(numbers))

    @rule(numbers=NUMBERS, kept=NUMBERS, same=st.booleans(), which=WHICH)
    def replace(self, numbers: list[int], kept: list[int], same: bool, which: int) -> None:
        books = self.books(numbers)
        if same:
            books |= {number: spot for number, spot in self.model.items() if number in books}
        keep = {pair(number) for number in kept}
        # Different from the last one even within the same millisecond.
        self.published_at += timedelta(milliseconds=1)
        receipt = self.stores[which].replace(
            (book(*one) for one in books.items()), keep.__contains__, published_at=self.published_at
        )
        gone = self.model.keys() - set(kept) - books.keys()
        new = [number for number, spot in books.items() if self.model.get(number) != spot]
        self.model = {number: spot for number, spot in self.model.items() if number in kept} | books
        self.check(receipt, len(gone) + len(new))

    @rule(which=WHICH)
    def reopen(self, which: int) -> None:
        self.stores[which].close()
        self.stores[which] = self.opened()

    @rule()
    def read_from_the_start(self) -> None:
        self.feed.close()
        self.live = LiveIndex()
        self.feed = open_feed(self.target)
        self.feed.start(self.live)

    @property
    def is_shown(self) -> bool:
        return True

    @invariant()
    def the_reader_shows_what_was_written(self) -> None:
        if hasattr(self, "feed") and self.is_shown:
            eventually(lambda: spots(self.live) == self.model)
            eventually(lambda: self.feed.revision == self.revision)

    def teardown(self) -> None:
        if hasattr(self, "feed"):
            self.feed.close()
            for store in self.stores:
                store.close()
