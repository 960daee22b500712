"""The store in a bucket: each change is stored in atomic batches of up to 1,000 messages.

Theory of operation
===================

A batch expects the last sequence of the bucket, so it is stored only if no other change was stored before it. If it was
not, the record of the bucket is read, and the batch is made again. Between two batches of a change, another publisher
may have overwritten what is stored of it: the rest is stored then, and no as_of is stated.

If the reply is lost, the batch is sent again, unless the record of the last message shows by its random id that it is
stored. At most one of the two is stored: if the second is rejected, the record is read once more. After a change of
another publisher, it is not known any more whether the first was stored: `UnknownOutcome`. A leader without the other
servers rejects the second, too, although the bucket is unchanged: the outcome of the first is then open, and the batch
is tried again later.

A batch of one book is one plain message, which takes the servers a fraction of the time of a batch.

The record is remembered, so that a change without retractions reads nothing. A change with retractions, and a
replacement, need the content. It is read once: then it follows from what others store, and from the own batches.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

from attrs import define, evolve, field

from market_index import InvalidFreshness, MarketIndexError, OrderBook, Pair, wire
from market_index_feeds.errors import (
    Conflict,
    FeedError,
    NotStored,
    Rejected,
    StoreError,
    UnknownOutcome,
    Unreachable,
    reason_of,
)
from market_index_feeds.event_loop import EventLoop
from market_index_feeds.nats.address import BucketAddress
from market_index_feeds.nats.bucket import MAX_BATCH, WRONG_SEQUENCE
from market_index_feeds.nats.reading import OPENING_SECONDS, NatsSource, position_of
from market_index_feeds.nats.record import Record
from market_index_feeds.nats.values import DELETION, HEARTBEAT_KEY, key_of, value_of
from market_index_feeds.source import Position, Version
from market_index_feeds.store import WAIT_SECONDS, CheckedChange, Receipt, Store

Messages: TypeAlias = list[tuple[str, bytes, dict[str, str]]]
"""Keys, values and headers."""


class _StoredInPart(FeedError):
    """The servers stored only the first messages of a batch."""

    def __init__(self, messages: int) -> None:
        super().__init__("a disk or an account of its servers may be full")
        self.messages = messages


def _is_stored(batch: Record, found: Record) -> bool:
    """Return whether the record that was found is that of a batch. Raises `_StoredInPart`."""
    if found.change == batch.change and found.part:
        raise _StoredInPart(found.part)
    return found.change == batch.change


@define
class _Writing:
    """A change, and the pairs of which it has stored the book or the retraction so far.

    `until` is when to give up if others always write first, on the monotonic clock.
    """

    change: CheckedChange
    after: Position | None
    until: float
    stored: set[Pair] = field(factory=set)

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of books and of retractions that are stored."""
        published = len(self.stored & self.change.books.keys())
        return published, len(self.stored) - published


class NatsStore(Store):
    """A bucket, opened for publishing. A change is retried for `wait` seconds while the servers do not answer."""

    def __init__(self, address: BucketAddress, *, wait: float = WAIT_SECONDS, create: bool = True) -> None:
        """Open a bucket. It is created if it does not exist and `create` is true. Raises `StoreError`."""
        super().__init__(address.shown, wait)
        self._content = NatsSource(address)
        self._bucket = self._content.bucket
        self._retried = self._bucket.connection.retried
        # The position and the record of the bucket. None: they must be read, because others may have changed it.
        self._stored: tuple[Position, Record] | None = None
        self._loop = EventLoop()

        async def opened() -> None:
            await self._retried(lambda: self._bucket.open(create=create), OPENING_SECONDS)

        try:
            self._in_turn("cannot be opened", lambda: self._loop.run(opened()))
        except BaseException:
            self.close()
            raise

    def _position(self) -> Position:
        return self._loop.run(self._retried(self._content.position, self._wait))

    def _read(self) -> Version:
        return self._loop.run(self._refresh())

    def _write(self, change: CheckedChange, after: Position | None) -> Receipt:
        return self._loop.run(self._written(_Writing(change, after, monotonic() + self._wait)))

    def _close(self) -> None:
        self._loop.run(self._bucket.connection.close())
        self._loop.close()

    def _encoded(self, book: OrderBook) -> bytes:
        return value_of(book)

    @property
    def _max_body_bytes(self) -> int:
        return min(self._bucket.max_value_bytes, wire.MAX_ORDER_BOOK_BYTES)

    async def _refresh(self) -> Version:
        """Return the content, after reading what has changed."""
        await self._retried(self._content.refresh, self._wait)
        return self._content.content

    async def _load(self) -> tuple[Position, Record]:
        """Read the position and the record of the bucket."""
        info, record = await self._bucket.info(), Record()
        message = await self._bucket.find(seq=info.state.last_seq) if info.state.messages else None
        with suppress(InvalidFreshness):
            record = Record.of(message, info.state.messages)
        return position_of(info), record

    async def _written(self, writing: _Writing) -> Receipt:
        """Store a change. After a change by others, its rest is compared again with what is stored."""
        try:
            while True:
                try:
                    return await self._write_rest(writing)
                except Conflict:
                    if writing.after is not None:
                        raise
                    if monotonic() > writing.until:
                        raise self._busy("was not written to") from None
        except (MarketIndexError, OSError) as error:
            if not writing.stored:
                raise
            published, retracted = writing.counts
            kind = type(error) if isinstance(error, StoreError) else StoreError
            raise kind(
                f"{self.name} was written to only in part ({published} books are stored, and {retracted} pairs "
                "retracted), and its as_of is not known: "
                f"{reason_of(error).removeprefix(f'{self.name} was not written to: ')}"
            ) from None

    async def _write_rest(self, writing: _Writing) -> Receipt:
        """Store what is not stored yet of a change, one batch after the other. Raises `Conflict`."""
        change, stored = writing.change, writing.stored
        if change.is_whole or change.retract:
            content = await self._refresh()
            assert content.position is not None  # noqa: S101  # a bucket has positions
            position, record = content.position, self._content.record
            values, gone = change.differences(content)
        else:
            if self._stored is None or writing.after is not None:
                self._stored = await self._retried(self._load, self._wait)
            (position, record), values, gone = self._stored, dict(change.bodies), set()
        self._require_position(writing.after, position)
        # A replacement compares all of its books again. Otherwise, others may have overwritten what is stored of it.
        is_known = change.is_whole or writing.after is not None or (record.is_known and not stored)
        freshness = change.freshness_after(record.freshness)
        rest = [pair for pair in [*values, *gone] if change.is_whole or pair not in stored]
        while True:
            batch, rest = rest[:MAX_BATCH], rest[MAX_BATCH:]
            books = [pair for pair in batch if pair in values]
            deleted = batch[len(books) :]
            messages: Messages = [(key_of(pair), values[pair], {}) for pair in books]
            messages += [(key_of(pair), b"", dict(DELETION)) for pair in deleted]
            record = record.next(uuid4().hex, freshness, is_last=not rest, is_known=is_known)
            self._stored, before = None, position
            try:
                position = await self._commit(messages or [(HEARTBEAT_KEY, b"", {})], record, before)
            except _StoredInPart as error:
                stored.update(batch[: error.messages])
                raise
            self._stored = position, record
            self._content.take_over([change.books[pair] for pair in books], deleted, record, before, position)
            stored.update(batch)
            writing.until = monotonic() + self._wait
            if not rest:
                return Receipt(*writing.counts, position=position, freshness=record.freshness)

    async def _commit(self, messages: Messages, record: Record, position: Position) -> Position:
        """Store a batch with its record if this is the position of the bucket. Return the next position.

        Raises `Conflict`, `UnknownOutcome`, `_StoredInPart`, `Unreachable` or `Rejected`.
        """
        may_be_stored, attempts = False, count()
        key, value, headers = messages[-1]
        batch = [*messages[:-1], (key, value, headers | record.headers())]

        async def attempt() -> Position:
            nonlocal may_be_stored
            if may_be_stored:
                found, stored = await self._load()
                if _is_stored(record, stored):
                    return found
            try:
                number = await self._bucket.commit(batch, position.number, f"{record.change}.{next(attempts)}")
                return evolve(position, number=number)
            except Unreachable as error:
                may_be_stored = may_be_stored or not isinstance(error, NotStored)
                raise
            except Rejected as error:
                return await self._outcome(error, record, position, may_be_stored=may_be_stored)

        try:
            return await self._retried(attempt, self._wait)
        except (Unreachable, Rejected) as error:
            if may_be_stored:
                raise UnknownOutcome(
                    f"{self.name} did not acknowledge a change within {self._wait:g} seconds ({error}): it may be "
                    "stored, now or later, but only if no other change is stored before"
                ) from None
            raise

    async def _outcome(
        self, rejected: Rejected, record: Record, position: Position, *, may_be_stored: bool
    ) -> Position:
        """Return the next position if an earlier attempt has stored a rejected batch. Raises as `_commit`."""
        found, stored = await self._load()
        if _is_stored(record, stored):
            return found
        if rejected.code not in WRONG_SEQUENCE:
            raise rejected
        if found == position:
            # The leader also counts what it has proposed to the other servers, such as the last attempt.
            raise NotStored("the servers have not agreed on an earlier change")
        # Otherwise the bucket was rolled back or created again, without the change.
        may_be_overwritten = found.run == position.run and found.number > position.number
        if may_be_stored and may_be_overwritten:
            raise UnknownOutcome(
                f"{self.name} did not acknowledge a change, and others have changed it since: it may be lost"
            )
        raise Conflict(f"{self.name} was not written to: others have changed it")
