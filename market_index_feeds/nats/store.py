"""The store in a bucket of NATS JetStream: for a publisher, with any number of replicas that follow it.

A bucket contains the last book of each pair, under the key of the pair. Each change of one book is a message with the
next sequence of the bucket, which is its revision; so is the freshness of all books, which `freshness.py` explains.
`writes.py` explains why nothing newer is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any, Final, TypeVar

from market_index import Freshness, OrderBook, Pair
from market_index_feeds.errors import reason_of
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.errors import BUCKET_ERRORS
from market_index_feeds.nats.event_loop import EventLoop
from market_index_feeds.nats.freshness import BucketFreshness
from market_index_feeds.nats.publisher import Change, Publisher, Stored
from market_index_feeds.nats.records import Record, key_of, pair_of, record_of
from market_index_feeds.nats.retry import OPENING, Patience, retry
from market_index_feeds.nats.writes import WriteState
from market_index_feeds.opened import shown_name
from market_index_feeds.store import BookRejected, BookTooLarge, Receipt, Store, StoreBusy, StoreError, require_book

T = TypeVar("T")

_MAX_LOCK_SECONDS: Final = 1_000_000.0  # above some such number `acquire` raises OverflowError


class NatsStore(Store):
    """A bucket, opened for publishing.

    Each book is a change of its own: others may see some books of a call before the rest, and the freshness after it
    last. If nothing is acknowledged for `wait` seconds, `Unacknowledged` is raised.
    """

    def __init__(self, address: Address, wait: float, opening: Patience = OPENING) -> None:
        super().__init__(address.shown)
        self._wait = wait
        self._opening = opening
        self._patience = Patience(wait, wait)
        self._publisher = Publisher(address, self.target, wait)
        self._freshness = BucketFreshness(self._publisher, self.target, self._patience)
        self._turn = RLock()
        # The revision of the bucket at the last `replace`, and how many writes were acknowledged until then.
        self._replaced: tuple[int, int] | None = None
        self._is_open = self._is_asking = False
        self._doing: Future[Any] = Future()
        try:
            self._loop: EventLoop | None = EventLoop(f"store {self.target}")
        except (OSError, RuntimeError) as error:
            raise StoreError(f"{self.target} cannot be opened: {reason_of(error)}") from None

    def open(self, *, create: bool) -> None:
        """Connect, and create the bucket if it does not exist. Raises `StoreError`."""
        try:
            with self._in_turn() as do:
                do(retry(lambda: self._publisher.require_bucket(create=create), self._opening))
                do(retry(self._freshness.open, self._opening))
        except BaseException:
            self.close()
            raise
        self._is_open = True

    @property
    def revision(self) -> int:
        """The revision of the last change by any publisher; 0 before the first."""
        with self._in_turn() as do:
            return do(retry(self._publisher.revision, self._patience))

    def is_as_left(self) -> bool:
        """Whether no other publisher has changed it since the last `replace` of this store; see `Store.is_as_left`.

        Own writes without an acknowledgement count as those of another publisher.
        """
        with self._in_turn() as do:
            state = do(retry(self._publisher.state, self._patience))
            if self._replaced is None:
                return False
            revision, written = self._replaced
            is_ours = state.last_sequence == revision + self._publisher.written - written
            return is_ours and state.keys == len(self._publisher.sequences)

    def close(self) -> None:
        """Disconnect, also while another thread writes: its call raises. Closing twice does no harm."""
        if self._loop is not None and not self._loop.is_ours:
            return
        self._doing.cancel()
        with self._turn:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.close(self._publisher.cluster.disconnect)

    def _update(
        self, books: list[OrderBook], retract: set[Pair], freshness: Freshness, *, keeps_as_of: bool
    ) -> Receipt:
        records = _records(books)
        keys = {key_of(pair) for pair in retract}
        publisher = self._publisher
        with self._in_turn() as do:
            stored = do(retry(lambda: publisher.stored_among(keys), self._patience)) if keys else set()
            # An unacknowledged write must not be stored after this.
            deleted = stored | (keys & publisher.unacknowledged)
            change = Change(records | dict.fromkeys(deleted))
            work = self._freshness.write(change, freshness, keeps_as_of=keeps_as_of, is_whole=False)
            revision = do(work) or do(retry(publisher.revision, self._patience))
        published, retracted = change.written & records.keys(), change.written & stored
        return self._receipt(change, Receipt(revision, len(published), len(retracted)))

    def _replace(self, books: Iterable[OrderBook], keep: Callable[[Pair], bool], freshness: Freshness) -> Receipt:
        """Make these books the whole bucket.

        Each book is a change of its own: first the new books, then the retracted pairs. The books are held in memory,
        deflated, until all are read. Keys that name no pair are left alone.
        """
        records = _records(map(require_book, books))
        with self._in_turn() as do:
            revision, stored = do(retry(self._publisher.stored, self._patience, lambda: self._publisher.listed))
            written = self._changed(records, stored)
            deleted = self._dropped(records, stored, keep)
            self._publisher.sequences = {key: last.sequence for key, last in stored.items()}
            self._replaced = revision, self._publisher.written
            change = Change(written | dict.fromkeys(deleted))
            work = self._freshness.write(change, freshness, keeps_as_of=False, is_whole=True)
            revision = do(work) or revision
        retracted = sum(key in stored and not stored[key].is_deletion for key in change.written.intersection(deleted))
        return self._receipt(change, Receipt(revision, len(change.written & records.keys()), retracted))

    def _changed(self, records: dict[str, Record], stored: dict[str, Stored]) -> dict[str, Record]:
        """Return the records that are not stored yet.

        One with an unacknowledged write is stored again: that write must expect too old a sequence.
        """
        unacknowledged = self._publisher.unacknowledged
        return {
            key: record
            for key, record in records.items()
            if key not in stored or stored[key].digest != record.digest or key in unacknowledged
        }

    def _dropped(self, named: Iterable[str], stored: dict[str, Stored], keep: Callable[[Pair], bool]) -> list[str]:
        """Return the keys to delete: those that are stored, or may yet be, and not named."""
        may_be_stored = {key for key, last in stored.items() if not last.is_deletion} | self._publisher.unacknowledged
        dropped = []
        for key in sorted(may_be_stored.difference(named)):
            pair = pair_of(key)
            if pair is not None and not self._is_kept(keep, pair):
                dropped.append(key)
        return dropped

    def _is_kept(self, keep: Callable[[Pair], bool], pair: Pair) -> bool:
        self._is_asking = True
        try:
            return keep(pair)
        finally:
            self._is_asking = False

    @contextmanager
    def _in_turn(self) -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
        """Wait until no other thread uses the connection, and yield a function that runs a coroutine on it."""
        loop = self._loop
        if loop is not None and not loop.is_ours:
            raise StoreError(f"{self.target} was opened before a fork: open it in the process that publishes")
        if not self._turn.acquire(timeout=min(self._wait, _MAX_LOCK_SECONDS)):
            raise StoreBusy(f"{self.target} was not written to: others have been writing for {self._wait:g} seconds")
        try:
            if self._is_asking:
                raise StoreError(f"{self.target}: this thread is in the middle of another change")
            yield partial(self._run, loop)
        finally:
            self._turn.release()

    def _run(self, loop: EventLoop | None, work: Coroutine[Any, Any, T]) -> T:
        if loop is None or self._loop is None:
            work.close()
            raise StoreError(f"{self.target} is closed")
        self._doing = future = loop.start(work)
        try:
            return future.result()
        except CancelledError:
            raise StoreError(
                f"{self.target} was closed meanwhile: what was not acknowledged may be written yet"
            ) from None
        except BUCKET_ERRORS as error:
            what = "was not written to" if self._is_open else "cannot be opened"
            raise StoreError(f"{self.target} {what}: {reason_of(error)}") from None
        except BaseException:
            future.cancel()
            raise

    def _receipt(self, change: Change, receipt: Receipt) -> Receipt:
        """Return the receipt. Raises `BookTooLarge` or `BookRejected`, which contain it, if it is not all."""
        lengths = {pair: one.length for one in change.of(WriteState.TOO_LARGE) if (pair := pair_of(one.key))}
        rejections = {pair: one.rejection for one in change.of(WriteState.REJECTED) if (pair := pair_of(one.key))}
        if rejections:
            pair, reason = next(iter(rejections.items()))
            written, others = len(change.written), f" and {len(rejections) - 1} others" if len(rejections) > 1 else ""
            raise BookRejected(
                f"{self.target} rejected {pair}{others}: {reason}; {written} of {len(change.writes)} changes were made",
                (*rejections, *lengths),
                receipt,
            )
        if lengths:
            pair, length = next(iter(lengths.items()))
            others = f", nor of {len(lengths) - 1} others," if len(lengths) > 1 else ""
            raise BookTooLarge(
                f"{self.target} does not take the book of {pair}{others}: it has {length} bytes, deflated, and the "
                f"servers take {self._publisher.cluster.max_value_bytes}; all else was written",
                tuple(lengths),
                receipt,
            )
        self._freshness.require_taken()
        return receipt


def _records(books: Iterable[OrderBook]) -> dict[str, Record]:
    """Return the records of the books by key. If a pair repeats, its last book wins."""
    return {record.key: record for record in map(record_of, books)}


def open_nats_store(target: str, *, wait: float, make: bool = True, opening: Patience = OPENING) -> NatsStore:
    """Open a bucket for publishing; create it if it does not exist and `make` is true.

    Raises `StoreError`.
    """
    if not wait >= 0:
        raise ValueError(f"wait must be 0 or more seconds, not {wait}")
    try:
        address = Address.parse(target)
    except ValueError as error:
        raise StoreError(f"{shown_name(target)} cannot be opened: {error}") from None
    store = NatsStore(address, wait, opening)
    store.open(create=make)
    return store
