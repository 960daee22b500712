"""Stores: books are published into them, one transaction per change. A recording is a store, too.

Theory of operation
===================

`Store` has the rules of changes: which arguments are valid, which of a book and a retraction of one pair wins (the
book), what a change without a freshness means, and when a store can be used. It makes a `CheckedChange` of each call.

A medium is a subclass with four methods. `_write` writes a checked change in one transaction: it compares `after` with
the position of the store, asks the change what differs from what is stored, and writes that with its freshness. A
medium raises `FeedError` or `OSError` for what the user cannot change; the store makes a `StoreError` of it.

A call takes its turn: one thread at a time is in a medium. `close` waits for its turn, too. If a signal handler closes
a store in the middle of a call of the same thread, the medium is closed at the end of that call.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from threading import RLock, get_ident
from typing import Final, Self, TypeVar

from attrs import evolve, field, frozen

from market_index import Freshness, InvalidOrderBook, MarketIndex, OrderBook, Pair, wire
from market_index.errors import safe_repr
from market_index_feeds.errors import BookTooLarge, Busy, Conflict, FeedError, StoreBusy, StoreError, reason_of
from market_index_feeds.source import Position, Version, utc_now

LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_SECONDS: Final = 5.0
"""The default timeout of a writer that waits for others."""

MAX_WAIT_SECONDS: Final = 1_000_000.0
"""A longer timeout is as long: SQLite counts milliseconds in 32 bits."""


@frozen
class Receipt:
    """What was written: the numbers of `published` books and `retracted` pairs.

    `position` and `freshness` are those of the store after the change. The numbers of positions increase with each
    change. `left_out` has the books that exceed a limit of the store, if the change was to leave them out.
    """

    published: int = 0
    retracted: int = 0
    position: Position = field(kw_only=True, repr=False)
    freshness: Freshness = field(kw_only=True, repr=False)
    left_out: tuple[OrderBook, ...] = field(default=(), kw_only=True, repr=False)


@frozen
class CheckedChange:
    """A valid change. No pair is both in `books` and in `retract`.

    `bodies` has the encoded book of each pair. `is_whole`: whether the books are the whole content. `freshness` is that
    of all books of the store from now on. None: the as_of is unchanged; if `is_whole`, it is not known.
    """

    books: Mapping[Pair, OrderBook]
    bodies: Mapping[Pair, bytes]
    retract: frozenset[Pair] = frozenset()
    freshness: Freshness | None = None
    is_whole: bool = False

    def differences(self, stored: Version) -> tuple[dict[Pair, bytes], set[Pair]]:
        """Return the bodies to write, and the pairs to retract, if `stored` is the content of the store.

        An update writes all of its books. A replacement writes no book that is equal to the stored one.
        """
        if not self.is_whole:
            known = stored.index.keys() | stored.invalid
            return dict(self.bodies), {pair for pair in self.retract if pair in known}
        invalid: dict[Pair, object] = {pair: None for pair in stored.invalid if pair is not None}
        before = {**stored.index, **invalid}
        bodies = {pair: body for pair, body in self.bodies.items() if before.get(pair) != self.books[pair]}
        return bodies, before.keys() - self.books.keys()

    def freshness_after(self, before: Freshness, clock: Callable[[], datetime] = utc_now) -> Freshness:
        """Return the freshness to write, if `before` is the stored one. Without a publish time, it gets that of now."""
        given = self.freshness or Freshness(None if self.is_whole else before.as_of)
        return Freshness(given.as_of, clock()) if given.published_at is None else given


class Store(ABC):
    """A store, opened for publishing: a file or a bucket (`open_store`), or a recording (`Recorder`).

    Each call is one atomic change: if it raises `StoreError`, nothing is written, unless it is an `UnknownOutcome`. Any
    thread may call; calls take turns. Only the process that opened the store can use it, not one that is forked later.
    Close it when done. `name` is the name that it was opened by, without credentials.

    In a bucket, a change of more than 1,000 books and pairs is atomic only in parts of 1,000. An error in the middle
    says how many are stored. After a write by another program, a change that was not finished, or a change between two
    parts of another one, the as_of of a bucket is unknown until the bucket is replaced, or changed with `after`.
    """

    def __init__(self, name: str, wait: float = MAX_WAIT_SECONDS) -> None:
        """`wait` is how many seconds a call waits for its turn."""
        self.name = name
        self._wait = min(wait, MAX_WAIT_SECONDS)
        self._process = os.getpid()
        # Reentrant, because a signal handler may close the store. `_caller` is the thread that is in the medium.
        self._lock = RLock()
        self._caller: int | None = None
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # What a medium does. Each may raise `FeedError`, `OSError` or `StoreError`.

    @abstractmethod
    def _position(self) -> Position:
        """Return the position after the last change by any program; its number is 0 before the first one."""

    @abstractmethod
    def _read(self) -> Version:
        """Return the content, with its position."""

    @abstractmethod
    def _write(self, change: CheckedChange, after: Position | None) -> Receipt:
        """Write a change in one transaction, if the store is at the position `after`; None: at any position.

        Raises `Conflict` if it is at another position: see `_require_position`.
        """

    @abstractmethod
    def _close(self) -> None:
        """Close the medium. It is called once."""

    def _encoded(self, book: OrderBook) -> bytes:
        """Return a book as the medium stores it."""
        return wire.order_book_to_json(book)

    @property
    def _max_body_bytes(self) -> int:
        """The limit of an encoded book."""
        return wire.MAX_ORDER_BOOK_BYTES

    def _require_position(self, after: Position | None, position: Position) -> None:
        """Raise `Conflict` if a change is only valid after another position than that of the store."""
        if after not in {None, position}:
            raise Conflict(f"{self.name} was not written to: others have changed it")

    def _busy(self, action: str) -> StoreBusy:
        return StoreBusy(f"{self.name} {action}: others have been writing for {self._wait:g} seconds")

    # What a publisher does.

    @property
    def position(self) -> Position:
        """The position after the last change by any program; its number is 0 before the first one.

        Raises `StoreError`.
        """
        return self._in_turn("cannot be read", self._position)

    def read(self) -> Version:
        """Return the content, with its position. Only what changed since the last call is read.

        If nothing was ever published, the index is empty. Raises `StoreError`.
        """
        return self._in_turn("cannot be read", self._read)

    def publish(self, *books: OrderBook) -> Receipt:
        """Store these books; each replaces the stored book of its pair. Raises as `update`."""
        return self.update(books)

    def retract(self, *pairs: Pair) -> Receipt:
        """Remove these pairs. A pair that is not in the store is no error, and is not counted. Raises as `update`."""
        return self.update((), pairs)

    def update(
        self,
        books: Iterable[OrderBook],
        retract: Iterable[Pair] = (),
        freshness: Freshness | None = None,
        *,
        after: Position | None = None,
        leave_out: bool = False,
    ) -> Receipt:
        """Retract pairs and store books, in one transaction. If a pair is in both, it gets its book.

        `freshness` is that of all books of the store from now on; None: the as_of is unchanged. Without a publish time,
        it gets the wall clock of this machine. An update without books and pairs is a heartbeat: it shows that the
        publisher is alive. With `after`, nothing is written if the store was changed after this position. With
        `leave_out`, books above a limit of the store are logged and left out, and a given as_of is withheld then.

        Raises:
            Conflict: The store was changed after the position `after`.
            BookTooLarge: A book exceeds a limit of the store, without `leave_out`.
            StoreError: The change cannot be written.
            UnknownOutcome: It is not known whether the change was written.
            InvalidOrderBook: A value of `books` is not an order book, or one of `retract` not a `Pair`.
            InvalidFreshness: `freshness` is not a `Freshness`.
        """
        pairs = frozenset(_checked(retract, Pair, "pair must be a Pair"))
        return self._change(books, freshness, after, pairs, leave_out=leave_out)

    def replace(
        self, books: Iterable[OrderBook], freshness: Freshness | None = None, *, leave_out: bool = False
    ) -> Receipt:
        """Make these books the whole content: every other pair is retracted, and invalid records are removed.

        A book that is equal to the stored one is not written again, and is not counted. `freshness` of None: the as_of
        is not known. `leave_out` as for `update`; pairs that are left out are retracted. Raises as `update`.
        """
        return self._change(books, freshness, is_whole=True, leave_out=leave_out)

    def close(self) -> None:
        """Close the store, after the calls of other threads. Closing twice does no harm.

        In a process that was forked after the store was opened, it does nothing.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._is_open:
                self._is_open = False
                if self._caller is None:
                    self._close()

    def _change(
        self,
        books: Iterable[OrderBook],
        freshness: Freshness | None,
        after: Position | None = None,
        retract: frozenset[Pair] = frozenset(),
        *,
        is_whole: bool = False,
        leave_out: bool,
    ) -> Receipt:
        if freshness is not None:
            MarketIndex().with_freshness(freshness)  # raises InvalidFreshness
        by_pair = {book.pair: book for book in _checked(books, OrderBook, "book must be an OrderBook")}
        bodies, limit = {pair: self._encoded(book) for pair, book in by_pair.items()}, self._max_body_bytes
        if large := tuple(pair for pair, body in bodies.items() if len(body) > limit):
            others = f" and those of {len(large) - 1} others" if len(large) > 1 else ""
            problem = (
                f"{self.name} does not accept the book of {large[0]}{others}: it must be stored in at most {limit} "
                f"bytes, got {len(bodies[large[0]])}"
            )
            if not leave_out:
                raise BookTooLarge(f"{problem}; nothing was written", large)
            LOG.warning("%s; leaving it out", problem)
            freshness = freshness and freshness.without_as_of()
        left_out = tuple(map(by_pair.pop, large))
        for pair in large:
            del bodies[pair]
        change = CheckedChange(by_pair, bodies, retract.difference(by_pair, large), freshness, is_whole)
        receipt = self._in_turn("was not written to", partial(self._write, change, after))
        return evolve(receipt, left_out=left_out) if left_out else receipt

    def _in_turn(self, action: str, work: Callable[[], T]) -> T:
        """Return the result of work in the medium, while no other thread is in it. Convert its errors."""
        if os.getpid() != self._process:
            # It would share a connection with the other process.
            raise StoreError(f"{self.name} was opened before a fork: open it in the process that publishes")
        if self._caller == get_ident():
            raise StoreError(f"{self.name}: this thread is in the middle of another change")
        try:
            if not self._lock.acquire(timeout=self._wait):
                raise self._busy(action)
            if not self._is_open:
                raise StoreError(f"{self.name} is closed")
            self._caller = get_ident()
            try:
                with self._errors(action):
                    return work()
            finally:
                self._end_call()
        finally:
            # An interrupt may be raised as `acquire` returns. So only the lock knows whether this thread has it.
            try:  # noqa: SIM105  # within the call of `suppress`, another interrupt may be raised
                self._lock.release()
            except RuntimeError:
                pass

    def _end_call(self) -> None:
        self._caller = None
        if not self._is_open:  # it was closed within the call
            self._close()

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Convert the errors of a medium."""
        try:
            yield
        except Busy as error:
            raise self._busy(action) from error
        except (FeedError, OSError) as error:
            reason = reason_of(error, "to read and write it, and to write its folder")
            raise StoreError(f"{self.name} {action}: {reason}") from error


def _checked(values: Iterable[T], kind: type[T], rule: str) -> list[T]:
    """Return the values. Raises `InvalidOrderBook` with the rule if one is not of this very class."""
    checked = [*values]
    for value in checked:
        if type(value) is not kind:
            raise InvalidOrderBook(f"{rule}, got {type(value).__name__}: {safe_repr(value)}")
    return checked
