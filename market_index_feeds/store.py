"""The interface of a store: books are published into it, one transaction per change. A recording is a `Target` too."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime

from attrs import field, frozen

from market_index import Freshness, InvalidOrderBook, MarketIndexError, OrderBook, Pair
from market_index.errors import safe_repr
from market_index_feeds.opened import Closeable
from market_index_feeds.source import Position, Version


class StoreError(MarketIndexError):
    """A store cannot be opened, read or written. Nothing of the change was written, but see `UnknownOutcome`."""


class StoreBusy(StoreError):
    """Other processes were writing to the store until the timeout of the caller."""


class Conflict(StoreError):
    """The store was changed after the position that the caller knows. Nothing was written."""


class BookTooLarge(StoreError):
    """The books of `pairs` exceed a limit of the store. Nothing was written."""

    def __init__(self, message: str, pairs: tuple[Pair, ...]) -> None:
        super().__init__(message, pairs)
        self.pairs = pairs


class UnknownOutcome(StoreError):
    """It is not known whether the change was written: it was not acknowledged in time.

    It is written as a whole or not at all. `read` shows which.
    """


@frozen
class Receipt:
    """What was written: the numbers of `published` books and `retracted` pairs, and the `revision` of the store.

    The revisions of a store increase. `position` is where the store is after the change. It is excluded from equality.
    """

    revision: int
    published: int = 0
    retracted: int = 0
    position: Position | None = field(default=None, repr=False, eq=False)


class Target(Closeable):
    """What a mirror writes into: it can be read, and changed from what was read.

    `name` is the name that it was opened by, without credentials.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    @abstractmethod
    def position(self) -> Position:
        """The position after the last change by any program; its number is 0 before the first one.

        Raises `StoreError`.
        """

    @abstractmethod
    def read(self) -> Version:
        """Return the content, with its position. Only what changed since the last call is read.

        If nothing was ever published, the index is empty. Raises `StoreError`.
        """

    @abstractmethod
    def update(
        self,
        books: Iterable[OrderBook],
        retract: Iterable[Pair] = (),
        freshness: Freshness | None = None,
        *,
        after: Position | None = None,
    ) -> Receipt:
        """Retract pairs and store books, in one transaction. If a pair is in both, it gets its book.

        `freshness` is that of all books of the store from now on; None: the as_of is unchanged. Without a publish time,
        it gets the wall clock of this machine. An update without books and pairs is a heartbeat: it shows that the
        publisher is alive. With `after`, nothing is written if the store was changed after this position.

        Raises:
            Conflict: The store was changed after the position `after`.
            BookTooLarge: A book exceeds a limit of the store.
            StoreError: The change cannot be written.
            UnknownOutcome: It is not known whether the change was written.
            InvalidOrderBook: A value is not an order book.
            TypeError: A value of `retract` is not a `Pair`.
        """


class Store(Target):
    """A store, opened for publishing. Open it with `open_store`, and close it when done.

    Each call is one atomic change: if it raises `StoreError`, nothing is written, unless it is an `UnknownOutcome`. Any
    thread may call; calls take turns. Only the process that opened the store can use it, not one that is forked later.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._process = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked after the store was opened. Then closing the store does nothing."""
        return os.getpid() != self._process

    def require_own_process(self) -> None:
        """Raise `StoreError` if the store was opened before a fork: it shares a connection with the other process."""
        if self.is_forked:
            raise StoreError(f"{self.name} was opened before a fork: open it in the process that publishes")

    def publish(self, *books: OrderBook) -> Receipt:
        """Store these books; each replaces the stored book of its pair. Raises as `update`."""
        return self.update(books)

    def retract(self, *pairs: Pair) -> Receipt:
        """Remove these pairs. A pair that is not in the store is no error, and is not counted. Raises as `update`."""
        return self.update((), pairs)

    @abstractmethod
    def replace(self, books: Iterable[OrderBook], freshness: Freshness | None = None) -> Receipt:
        """Make these books the whole content: every other pair is retracted, and invalid records are removed.

        A book that is equal to the stored one is not written again, and is not counted. `freshness` of None: the as_of
        is not known. Raises as `update`.
        """


def published_now(as_of: str | None = None) -> Freshness:
    """Return the freshness of books that are published now, by the wall clock of this machine."""
    return Freshness(as_of, datetime.now(UTC))


def books_by_pair(books: Iterable[OrderBook]) -> dict[Pair, OrderBook]:
    """Return the books that are to be stored, by pair: the last one of each. Raises `InvalidOrderBook`."""
    by_pair = {}
    for book in books:
        if type(book) is not OrderBook:
            raise InvalidOrderBook(f"book must be an OrderBook, got {type(book).__name__}: {safe_repr(book)}")
        by_pair[book.pair] = book
    return by_pair


def checked_pairs(pairs: Iterable[Pair]) -> set[Pair]:
    """Return the pairs that are to be retracted. Raises `TypeError`."""
    checked = set()
    for pair in pairs:
        if type(pair) is not Pair:
            raise TypeError(f"pair must be a Pair, got {type(pair).__name__}: {safe_repr(pair)}")
        checked.add(pair)
    return checked
