"""The store in a bucket of NATS JetStream: it publishes books into the bucket, which any number of replicas follow.

A bucket contains the last book of each pair, under the key of the pair. Each change of one book is a message, and its
sequence in the bucket is the revision. The freshness of all books is a message too, which `freshness.py` explains.
`publisher.py` explains why no write overwrites a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any, Final, TypeVar

from market_index import Freshness, OrderBook, Pair
from market_index_feeds.errors import reason_of
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.connection import OPENING, RetryTimeouts
from market_index_feeds.nats.errors import BUCKET_ERRORS
from market_index_feeds.nats.event_loop import EventLoop
from market_index_feeds.nats.freshness import BucketFreshness
from market_index_feeds.nats.publisher import Publisher, StoredKey
from market_index_feeds.nats.records import Record, key_of, pair_of, record_of
from market_index_feeds.nats.writes import WriteBatch
from market_index_feeds.opened import shown_name
from market_index_feeds.store import (
    BooksRejected,
    Receipt,
    Store,
    StoreBusy,
    StoreError,
    shown_pairs,
    too_large,
)

T = TypeVar("T")

_MAX_LOCK_SECONDS: Final = 1_000_000.0  # `acquire` raises OverflowError for much longer timeouts


class NatsStore(Store):
    """A bucket, opened for publishing.

    Each book is a change of its own: readers may see some books of a call before the others, and the freshness last. If
    nothing is acknowledged for `wait` seconds, `Unacknowledged` is raised.
    """

    def __init__(self, address: Address, wait: float, opening: RetryTimeouts = OPENING) -> None:
        super().__init__(address.shown)
        self._wait = wait
        self._publisher = Publisher(address, self.target, wait, opening)
        self._freshness = BucketFreshness(self._publisher, self.target)
        self._lock = RLock()
        self._is_open = False
        try:
            self._loop: EventLoop | None = EventLoop(f"store {self.target}")
        except (OSError, RuntimeError) as error:
            raise StoreError(f"{self.target} cannot be opened: {reason_of(error)}") from None

    def open(self, *, create: bool) -> None:
        """Connect, and create the bucket if it does not exist. Raises `StoreError`."""
        try:
            with self._locked() as run:
                run(self._publisher.open(create=create))
        except BaseException:
            self.close()
            raise
        self._is_open = True

    @property
    def revision(self) -> int:
        """The revision of the last change by any publisher; 0 before the first."""
        with self._locked() as run:
            return run(self._publisher.state()).last_sequence

    def is_unchanged_by_others(self) -> bool:
        """Whether no other publisher has changed the store; see `Store.is_unchanged_by_others`.

        Unacknowledged writes of this store count as those of another publisher.
        """
        publisher = self._publisher
        with self._locked() as run:
            state = run(publisher.state())
            return state.last_sequence == publisher.revision and publisher.has_all_keys(state)

    def close(self) -> None:
        """Disconnect. If another thread is writing, its call raises. Closing twice does no harm."""
        loop = self._loop
        if loop is not None and loop.is_ours:
            # Without the lock: it ends the work of the thread that holds it.
            loop.close(self._publisher.close)
            with self._lock:
                self._loop = None

    def _update(self, books: list[OrderBook], retract: set[Pair], freshness: Freshness | None) -> Receipt:
        records = _records(books)
        keys = {key_of(pair) for pair in retract}
        publisher = self._publisher
        with self._locked() as run:
            stored = run(publisher.stored_among(keys)) if keys else set()
            # An unacknowledged write must not be stored after this change.
            deleted = stored | (keys & publisher.unacknowledged)
            batch = WriteBatch.of_records(records | dict.fromkeys(deleted))
            revision = run(self._freshness.update(batch, freshness)) or run(publisher.state()).last_sequence
        pairs, retracted = _written(books, batch), batch.written & stored
        return self._receipt(batch, Receipt(revision, len(pairs), len(retracted), pairs=pairs))

    def _replace(self, books: list[OrderBook], retract: frozenset[Pair] | None, freshness: Freshness) -> Receipt:
        """Make these books the whole content of the bucket.

        Each book is a change of its own: first the new books, then the retracted pairs. Keys that name no pair are not
        changed.
        """
        records = _records(books)
        with self._locked() as run:
            stored = run(self._publisher.read_all(records))
            last_sequence, created = self._publisher.revision, self._publisher.created
            deleted, kept = self._not_named(records, stored, retract)
            batch = WriteBatch.of_records(self._changed(records, stored) | dict.fromkeys(deleted))
            freshness = freshness.without_as_of() if kept else freshness
            complete = created if retract is None else None
            revision = run(self._freshness.replace(batch, freshness, complete)) or last_sequence
        retracted = sum(key in stored and not stored[key].is_deletion for key in batch.written.intersection(deleted))
        pairs = _written(books, batch)
        return self._receipt(batch, Receipt(revision, len(pairs), retracted, kept, pairs))

    def _changed(self, records: dict[str, Record], stored: dict[str, StoredKey]) -> dict[str, Record]:
        """Return the records that are not stored yet.

        A record of a key with an unacknowledged write is written again, so that the old write fails its expected
        sequence if it arrives later.
        """
        unacknowledged = self._publisher.unacknowledged
        return {
            key: record
            for key, record in records.items()
            if key not in stored or not stored[key].is_same or key in unacknowledged
        }

    def _not_named(
        self, records: dict[str, Record], stored: dict[str, StoredKey], retract: frozenset[Pair] | None
    ) -> tuple[list[str], frozenset[Pair]]:
        """Return the keys to delete of those that are stored, or may be stored later; and the pairs of the others."""
        may_be_stored = {key for key, last in stored.items() if not last.is_deletion} | self._publisher.unacknowledged
        pairs = {key: pair for key in may_be_stored.difference(records) if (pair := pair_of(key)) is not None}
        kept = frozenset[Pair]() if retract is None else frozenset(pairs.values()) - retract
        return [key for key, pair in sorted(pairs.items()) if pair not in kept], kept

    @contextmanager
    def _locked(self) -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
        """Lock the connection for this thread, and yield a function that runs a coroutine on its event loop."""
        loop = self._loop
        if loop is not None and not loop.is_ours:
            raise StoreError(f"{self.target} was opened before a fork: open it in the process that publishes")
        if not self._lock.acquire(timeout=min(self._wait, _MAX_LOCK_SECONDS)):
            raise StoreBusy(f"{self.target} was not written to: others have been writing for {self._wait:g} seconds")
        try:
            yield partial(self._run, loop)
        finally:
            self._lock.release()

    def _run(self, loop: EventLoop | None, work: Coroutine[Any, Any, T]) -> T:
        if loop is None or self._loop is None:
            work.close()
            raise StoreError(f"{self.target} is closed")
        try:
            return loop.run(work)
        except CancelledError:
            raise StoreError(
                f"{self.target} was closed during a change: unacknowledged writes may still be stored"
            ) from None
        except BUCKET_ERRORS as error:
            what = "was not written to" if self._is_open else "cannot be opened"
            raise StoreError(f"{self.target} {what}: {reason_of(error)}") from None

    def _receipt(self, batch: WriteBatch, receipt: Receipt) -> Receipt:
        """Return the receipt. Raises `BooksRejected` with it if some books or removals were not written.

        Raises `StoreError` if the freshness was not written.
        """
        rejected = {pair: write for write in batch.rejected if (pair := pair_of(write.key))}
        limited = tuple(pair for pair, write in rejected.items() if write.limit)
        others = tuple(pair for pair, write in rejected.items() if not write.limit)
        if others:
            raise BooksRejected(
                f"{self.target} rejected {shown_pairs(others)}: {rejected[others[0]].reason}; "
                f"{len(batch.written)} of {len(batch.writes)} changes were made",
                (*others, *limited),
                receipt,
            )
        if limited:
            first = rejected[limited[0]]
            raise too_large(self.target, limited, first.limit, receipt, got=str(first.length))
        self._freshness.require_accepted()
        return receipt


def _records(books: Iterable[OrderBook]) -> dict[str, Record]:
    """Return the records of the books by key. If a pair repeats, its last book wins."""
    return {record.key: record for record in map(record_of, books)}


def _written(books: Iterable[OrderBook], batch: WriteBatch) -> frozenset[Pair]:
    """Return the pairs whose books were written."""
    return frozenset([book.pair for book in books if key_of(book.pair) in batch.written])


def open_nats_store(target: str, *, wait: float, make: bool = True, opening: RetryTimeouts = OPENING) -> NatsStore:
    """Open a bucket for publishing; create it if it does not exist and `make` is true.

    Raises `StoreError`.
    """
    if not wait >= 0:
        raise ValueError(f"wait must be 0 or more seconds, got {wait}")
    try:
        address = Address.parse(target)
    except ValueError as error:
        raise StoreError(f"{shown_name(target)} cannot be opened: {error}") from None
    store = NatsStore(address, wait, opening)
    store.open(create=make)
    return store
