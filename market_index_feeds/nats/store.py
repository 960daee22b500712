"""The store in a bucket of NATS JetStream: for a publisher, with any number of replicas that follow it.

A bucket holds the last book of each pair, under the key of the pair; each change of one book is a message with the next
sequence of the bucket, which is its revision. A book is written only where nothing else was written since its
publisher last knew: so what arrives late, on whatever way, never takes the place of a newer one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial
from threading import RLock
from time import monotonic
from typing import Any, Final, TypeVar

from attrs import define, field, frozen

from market_index import OrderBook, Pair
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import (
    NO_STREAM,
    TOO_LARGE,
    WRONG_SEQUENCE,
    Cluster,
    Connection,
    Lost,
    Message,
    NoBucket,
    Refused,
    State,
    Unreachable,
    Write,
)
from market_index_feeds.nats.event_loop import EventLoop
from market_index_feeds.nats.records import DIGEST_HEADER, Record, key_of, pair_of, record_of
from market_index_feeds.nats.retry import OPENING, Patience, retry
from market_index_feeds.opened import shown_name
from market_index_feeds.backoff import SHORTEST_SECONDS, next_backoff
from market_index_feeds.store import BookTooLarge, Receipt, Store, StoreBusy, StoreError, Unacknowledged, require_book

T = TypeVar("T")

_SURE_LOOKS: Final = 4
_SURE_SECONDS: Final = 0.4

_ATTEMPT_SECONDS: Final = 2.0

_AT_ONCE: Final = 64

_MOST_SECONDS: Final = 1_000_000.0
"""Locks go wrong above some such number."""

_LAST_SEQUENCE: Final = re.compile(r"wrong last sequence: (\d+)").fullmatch


@frozen
class _Standing:
    """What stands under a key: its sequence, the digest of its book where a store wrote it, whether it was deleted."""

    sequence: int
    digest: str | None
    is_deleted: bool


@frozen
class _Records:
    """The books of a call as they are to be stored, by key, and those that are too large for the servers."""

    fit: dict[str, Record]
    too_large: dict[str, Record]


@define
class _Change:
    """What is to stand under which key, None for nothing, as far as that is not acknowledged; and what came of it."""

    left: dict[str, Record | None]
    revision: int = 0
    moved_at: float = field(factory=monotonic)
    contested: set[str] = field(factory=set)
    refused: dict[str, Refused] = field(factory=dict)
    too_large: dict[str, Record] = field(factory=dict)


class NatsStore(Store):
    """A bucket, opened for publishing.

    Each book is a change by itself: others may see some of a call's books before the rest. Where no acknowledgement
    comes for `wait` seconds, `Unacknowledged` is raised.
    """

    def __init__(self, address: Address, wait: float, opening: Patience = OPENING) -> None:
        super().__init__(address.shown)
        self._wait = wait
        self._opening = opening
        self._patience = Patience(wait, wait)
        self._replicas = address.replicas
        self._cluster = Cluster(address)
        # The sequence of the last message of a key, as far as it is known; and which keys may get a later one yet.
        self._sequences: dict[str, int] = {}
        self._doubted: set[str] = set()
        self._turn = RLock()
        # The revision at which all that stood there was known, and how many changes of its own there were since.
        self._known: int | None = None
        self._own = 0
        self._is_open = self._is_changing = False
        self._doing: Future[Any] = Future()
        try:
            self._event_loop: EventLoop | None = EventLoop(f"store {self.target}")
        except (OSError, RuntimeError) as error:
            raise StoreError(f"{self.target} cannot be opened: {_reason(error)}") from None

    def open(self, *, make: bool) -> None:
        """Connect, and see to it that the bucket is there. Raises `StoreError`."""
        try:
            with self._in_turn() as do:
                do(retry(lambda: self._require_bucket(make=make), self._opening))
        except BaseException:
            self.close()
            raise
        self._is_open = True

    @property
    def revision(self) -> int:
        """The revision of the last change, whoever made it; 0 before the first."""
        with self._in_turn() as do:
            return do(retry(self._last_revision, self._patience))

    def replace(self, books: Iterable[OrderBook], keep: Callable[[Pair], bool] = lambda _: False) -> Receipt:
        """Make these books the whole of the bucket; see `Store.replace`.

        It is a change a book: first those that are new, then what is retracted. They are held in memory, deflated,
        until all are read. What stands under a key that names no pair is left alone.
        """
        records = self._records(map(require_book, books))
        with self._in_turn() as do:
            revision, standing = do(retry(self._standing, self._patience))
            changes: dict[str, Record | None] = {
                key: record
                for key, record in records.fit.items()
                # What may come yet must find something newer than it knew of, the same book if need be.
                if key not in standing or standing[key].digest != record.digest or key in self._doubted
            }
            published = len(changes)
            stands = {key for key, found in standing.items() if not found.is_deleted}
            retracted = 0
            for key in sorted((stands | self._doubted) - records.fit.keys() - records.too_large.keys()):
                pair = pair_of(key)
                if pair is not None and not self._is_kept(keep, pair):
                    changes[key] = None
                    retracted += key in stands
            self._sequences = {key: found.sequence for key, found in standing.items()}
            self._known, self._own = revision, 0
            change = _Change(changes, too_large=records.too_large)
            do(self._settle(change))
        published -= len(records.fit.keys() & change.too_large.keys())
        return self._receipt(change, Receipt(change.revision or revision, published, retracted))

    def is_as_left(self) -> bool:
        """Whether nobody else has changed it since this store last replaced all of it; see `Store.is_as_left`.

        What this store sent itself, and was not acknowledged, counts as somebody else's.
        """
        with self._in_turn() as do:
            state = do(retry(self._state, self._patience))
            known = None if self._known is None else self._known + self._own
        return state.last_sequence == known and state.keys == len(self._sequences)

    def close(self) -> None:
        """Let go of the servers, also while another thread writes, which is told. Closing twice does no harm."""
        if self._event_loop is not None and not self._event_loop.is_ours:
            return
        self._doing.cancel()
        with self._turn:
            event_loop, self._event_loop = self._event_loop, None
            if event_loop is not None:
                event_loop.close(self._cluster.disconnect)

    def _publish(self, books: list[OrderBook]) -> Receipt:
        records = self._records(books)
        change = _Change(dict(records.fit), too_large=records.too_large)
        with self._in_turn() as do:
            do(self._settle(change))
            revision = change.revision or do(retry(self._last_revision, self._patience))
        return self._receipt(change, Receipt(revision, published=len(records.fit.keys() - change.too_large.keys())))

    def _retract(self, pairs: tuple[Pair, ...]) -> Receipt:
        keys = {key_of(pair) for pair in pairs}
        with self._in_turn() as do:
            found = do(retry(lambda: self._last_of(keys), self._patience))
            stands = {key for key, last in found.items() if last is not None and last.value is not None}
            self._sequences.update((key, last.sequence) for key, last in found.items() if last is not None)
            # What may be written yet must not come to stand there after this.
            gone: dict[str, Record | None] = dict.fromkeys(stands | (keys & self._doubted))
            if not gone:
                return Receipt(do(retry(self._last_revision, self._patience)))
            change = _Change(gone)
            do(self._settle(change))
        return Receipt(change.revision, retracted=len(stands))

    def _records(self, books: Iterable[OrderBook]) -> _Records:
        """Return the books as they are to be stored. Raises `InvalidOrderBook` for what is none."""
        records = _Records({}, {})
        for book in books:
            record = record_of(book)
            fits = len(record.value) <= self._cluster.most
            # Of several of a pair the last holds.
            (records.too_large if fits else records.fit).pop(record.key, None)
            (records.fit if fits else records.too_large)[record.key] = record
        return records

    def _is_kept(self, keep: Callable[[Pair], bool], pair: Pair) -> bool:
        self._is_changing = True
        try:
            return keep(pair)
        finally:
            self._is_changing = False

    @contextmanager
    def _in_turn(self) -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
        """Give to this thread alone what does some work on the connection."""
        event_loop = self._event_loop
        if event_loop is not None and not event_loop.is_ours:
            raise StoreError(f"{self.target} was opened before a fork: open it in the process that publishes")
        if not self._turn.acquire(timeout=min(self._wait, _MOST_SECONDS)):
            raise StoreBusy(f"{self.target} was not written to: others have been writing for {self._wait:g} seconds")
        try:
            if self._event_loop is None:
                raise StoreError(f"{self.target} is closed")
            if self._is_changing:
                raise StoreError(f"{self.target}: this thread is in the middle of another change")
            yield partial(self._done, self._event_loop)
        finally:
            self._turn.release()

    def _done(self, event_loop: EventLoop, work: Coroutine[Any, Any, T]) -> T:
        if self._event_loop is None:
            work.close()
            raise StoreError(f"{self.target} is closed")
        self._doing = future = event_loop.start(work)
        try:
            return future.result()
        except CancelledError:
            raise StoreError(
                f"{self.target} was closed meanwhile: what was not acknowledged may be written yet"
            ) from None
        except (Unreachable, NoBucket, Refused, Lost, OSError) as error:
            what = "was not written to" if self._is_open else "cannot be opened"
            raise StoreError(f"{self.target} {what}: {_reason(error)}") from None
        except BaseException:
            future.cancel()
            raise

    async def _require_bucket(self, *, make: bool) -> None:
        connection = await self._cluster.connect()
        # One of several servers that has just come to lead may not know yet of what there is.
        looks = _SURE_LOOKS if connection.is_clustered and make else 1
        for look in range(looks):
            await asyncio.sleep(_SURE_SECONDS if look else 0)
            try:
                await connection.state()
            except NoBucket:
                if not make:
                    raise
            else:
                return
        await connection.make(self._replicas)

    async def _state(self) -> State:
        return await (await self._cluster.connect()).state()

    async def _last_revision(self) -> int:
        return (await self._state()).last_sequence

    async def _last_of(self, keys: Iterable[str]) -> dict[str, Message | None]:
        """Return what stands under each key now, None for nothing."""
        connection = await self._cluster.connect()
        found: dict[str, Message | None] = {}
        left = list(keys)
        while left:
            some, left = left[:_AT_ONCE], left[_AT_ONCE:]
            found.update(zip(some, await asyncio.gather(*map(connection.last, some)), strict=True))
        return found

    async def _standing(self) -> tuple[int, dict[str, _Standing]]:
        """Return the revision of the bucket, and what stands under each key then, but for the books themselves."""
        connection = await self._cluster.connect()
        standing: dict[str, _Standing] = {}
        watch = await connection.watch(headers_only=True)
        try:
            while watch.agreed_at is None:
                for message in await watch.next():
                    digest = message.headers.get(DIGEST_HEADER)
                    standing[message.key] = _Standing(message.sequence, digest, message.value is None)
        finally:
            await watch.close()
        return watch.revision, standing

    async def _settle(self, change: _Change) -> None:
        """Write a change until all of it is acknowledged. Raises `StoreError`."""
        size = len(change.left)
        pause, why = 0.0, ""
        while change.left:
            if pause:
                await asyncio.sleep(pause)
            pause = next_backoff(pause)
            try:
                connection = await self._cluster.connect()
                await self._learn_of(change)
                writes = [self._write(key, record) for key, record in change.left.items()]
                # Another server may take it where this one does not answer.
                patience = min(max(change.moved_at + self._wait - monotonic(), SHORTEST_SECONDS), _ATTEMPT_SECONDS)
                await self._send(connection, change, writes, patience)
                if change.refused:
                    await self._judge(connection, change, size)
                why = ""
            except Unreachable as error:
                why = str(error)
                await self._cluster.disconnect()
            if change.left and monotonic() > change.moved_at + self._wait:
                raise self._unacknowledged(change, size, why)

    async def _send(self, connection: Connection, change: _Change, writes: list[Write], patience: float) -> None:
        try:
            await connection.write(writes, lambda write, outcome: self._answered(change, write, outcome), patience)
        except BaseException:
            # However it ended, what was sent may be written yet.
            self._doubted |= connection.in_doubt
            raise

    def _write(self, key: str, record: Record | None) -> Write:
        expected = self._sequences.get(key, 0)
        if record is None:
            return Write(key, None, {}, expected)
        return Write(key, record.value, {DIGEST_HEADER: record.digest}, expected)

    def _answered(self, change: _Change, write: Write, outcome: int | Refused) -> None:
        if isinstance(outcome, int):
            self._acknowledged(change, write.key, outcome)
        elif outcome.code in WRONG_SEQUENCE:
            change.contested.add(write.key)
            told = _LAST_SEQUENCE(str(outcome))
            if told and write.key not in self._doubted:
                self._sequences[write.key] = int(told[1])
                change.contested.discard(write.key)
        else:
            change.refused[write.key] = outcome

    def _acknowledged(self, change: _Change, key: str, sequence: int) -> None:
        del change.left[key]
        self._sequences[key] = sequence
        self._doubted.discard(key)
        change.revision = max(change.revision, sequence)
        self._own += 1
        change.moved_at = monotonic()

    async def _learn_of(self, change: _Change) -> None:
        """Look what stands under the keys that are not as they were known: it may be this very change."""
        for key, last in (await self._last_of(change.contested)).items():
            self._sequences[key] = 0 if last is None else last.sequence
            if last is not None and key in self._doubted and _is_of(last, change.left[key]):
                self._acknowledged(change, key, last.sequence)
        change.contested.clear()

    async def _judge(self, connection: Connection, change: _Change, size: int) -> None:
        """Raise what was refused for good. Where nobody took a book, that is so when the bucket is gone."""
        refused, change.refused = change.refused, {}
        for key, why in refused.items():
            record = change.left[key]
            if why.code in TOO_LARGE and record is not None:
                change.too_large[key] = record
                del change.left[key]
            elif why.code != NO_STREAM:
                written = size - len(change.left) - len(change.too_large)
                raise StoreError(f"{self.target} refused {pair_of(key)}: {why}; {written} of {size} changes were made")
        if any(why.code == NO_STREAM for why in refused.values()):
            await connection.state()

    def _receipt(self, change: _Change, receipt: Receipt) -> Receipt:
        """Return the receipt, or raise `BookTooLarge`, which has it, where there were such."""
        if not change.too_large:
            return receipt
        pairs = {record.pair: len(record.value) for record in change.too_large.values()}
        pair, length = next(iter(pairs.items()))
        others = f", nor of {len(pairs) - 1} others," if len(pairs) > 1 else ""
        raise BookTooLarge(
            f"{self.target} does not take the book of {pair}{others}: it has {length} bytes, deflated, and the servers "
            f"take {self._cluster.most}; all else was written",
            tuple(pairs),
            receipt,
        )

    def _unacknowledged(self, change: _Change, size: int, why: str) -> StoreError:
        pairs = tuple(pair for pair in map(pair_of, change.left.keys() & self._doubted) if pair is not None)
        left = f"{len(change.left)} of {size} changes"
        if pairs:
            why = why or "others wrote as well"
            return Unacknowledged(
                f"{self.target} did not acknowledge {left} in {self._wait:g} seconds ({why}): "
                f"{len(pairs)} of those were sent, and may be written yet, but over nothing newer",
                pairs,
            )
        if why:
            return StoreError(f"{self.target} was not written to: {why}; {left} were not made")
        return StoreBusy(f"{self.target} was not written to: others wrote the same pairs for {self._wait:g} seconds")


def open_nats_store(target: str, *, wait: float, make: bool = True, opening: Patience = OPENING) -> NatsStore:
    """Open a bucket for publishing; one that is not there is made where that is wanted.

    Raises `StoreError`.
    """
    if not wait >= 0:
        raise ValueError(f"wait must be 0 or more seconds, not {wait}")
    try:
        address = Address.parse(target)
    except ValueError as error:
        raise StoreError(f"{shown_name(target)} cannot be opened: {error}") from None
    store = NatsStore(address, wait, opening)
    store.open(make=make)
    return store


def _is_of(message: Message, record: Record | None) -> bool:
    """Whether what stands there by a message is this, or nothing where that is wanted."""
    digest = None if message.value is None else message.headers.get(DIGEST_HEADER, "")
    return digest == (None if record is None else record.digest)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
