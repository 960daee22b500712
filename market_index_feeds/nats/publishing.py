"""The store in a bucket: each change is stored in atomic batches of up to 1,000 messages.

Theory of operation
===================

A batch expects the last sequence of the bucket, so it is stored only if no other change was stored before it. If it was
not, the record of the bucket is read, and the batch is made again. See `record` for changes of several batches.

If the reply is lost, the same batch is sent again. At most one of the two is stored. If the second is rejected, the
record of the last message shows by its random id that the first was stored. After a change of another publisher, that
is not known any more: `UnknownOutcome`. A leader without the other servers rejects the second, too, although the bucket
is unchanged: the outcome of the first is then open, and the batch is tried again later.

A batch of one book is one plain message, which takes the servers a fraction of the time of a batch.

The record is remembered, so that a change without retractions reads nothing. A change with retractions, and a
replacement, need the content. It is read once: then it follows from what others store, and from the own batches.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

from attrs import define, evolve, field, frozen

from market_index import Freshness, InvalidFreshness, MarketIndexError, OrderBook, Pair, wire
from market_index_feeds.errors import (
    Conflict,
    NotStored,
    Rejected,
    StoreError,
    UnknownOutcome,
    Unreachable,
    reason_of,
)
from market_index_feeds.event_loop import blocking, run
from market_index_feeds.names import shown_name
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import MAX_BATCH, WRONG_SEQUENCE
from market_index_feeds.nats.reading import OPENING_SECONDS, NatsSource
from market_index_feeds.nats.record import Content, Record
from market_index_feeds.nats.values import DELETION, HEARTBEAT_KEY, key_of, value_of
from market_index_feeds.source import UNKNOWN, Position, Version
from market_index_feeds.store import WAIT_SECONDS, CheckedChange, Receipt, Store

Messages: TypeAlias = list[tuple[str, bytes, dict[str, str]]]
"""Keys, values and headers."""


@frozen
class _Stored:
    """The position of a bucket, and the record of its last batch."""

    position: Position
    record: Record


@define
class _Writing:
    """A change, and what is stored of it so far.

    `until` is when to give up if others always write first, on the monotonic clock. `last` is the id of the last batch,
    and `before` the freshness of the content before the first one.
    """

    change: CheckedChange
    after: Position | None
    until: float
    last: str = ""
    before: Freshness = UNKNOWN
    published: set[Pair] = field(factory=set)
    retracted: set[Pair] = field(factory=set)

    def record_after(self, record: Record, *, is_last: bool) -> Record:
        """Return the record of the next batch, after that of the bucket."""
        if not self.last or record.pending != self.last:
            self.before = record.freshness
        knows_content = self.change.is_whole or self.after is not None
        freshness = self.change.freshness_after(self.before)
        return record.next(uuid4().hex, freshness, self.last, is_last=is_last, knows_content=knows_content)


class NatsStore(Store):
    """A bucket, opened for publishing. A change is retried for `wait` seconds while the servers do not answer."""

    def __init__(self, address: Address, wait: float) -> None:
        super().__init__(address.shown, wait)
        self._content = NatsSource(address)
        self._bucket = self._content.bucket
        self._retried = self._bucket.connection.retried
        # None: it must be read, because another program may have changed it.
        self._stored: _Stored | None = None
        self._runner = asyncio.Runner()

    def open(self, *, create: bool) -> None:
        """Connect, and create the bucket if it does not exist. Raises `StoreError`."""
        try:
            self._in_turn("cannot be opened", lambda: run(self._runner, self._opened(create=create)))
        except BaseException:
            self.close()
            raise

    def _position(self) -> Position:
        state = run(self._runner, self._retried(self._bucket.state, self._wait))
        return Position(state.created, state.sequence)

    def _read(self) -> Version:
        return run(self._runner, self._refresh())

    def _write(self, change: CheckedChange, after: Position | None) -> Receipt:
        return run(self._runner, self._written(_Writing(change, after, monotonic() + self._wait)))

    def _close(self) -> None:
        run(self._runner, self._bucket.connection.close())
        blocking(self._runner.close)

    def _encoded(self, book: OrderBook) -> bytes:
        return value_of(book)

    @property
    def _max_body_bytes(self) -> int:
        return min(self._bucket.max_value_bytes, wire.MAX_ORDER_BOOK_BYTES)

    async def _opened(self, *, create: bool) -> None:
        await self._retried(lambda: self._bucket.open(create=create), OPENING_SECONDS)

    async def _refresh(self) -> Version:
        """Return the content, after reading what has changed."""
        await self._retried(self._content.refresh, self._wait)
        return self._content.content

    async def _load(self) -> _Stored:
        """Read the position and the record of the bucket."""
        state = await self._bucket.state()
        record = Record()
        if not state.messages:
            record = Record(content=Content.NOTHING)
        else:
            with suppress(InvalidFreshness):
                record = Record.of(await self._bucket.find({"seq": state.sequence}))
        return _Stored(Position(state.created, state.sequence), record)

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
            if not (writing.published or writing.retracted):
                raise
            kind = type(error) if isinstance(error, StoreError) else StoreError
            raise kind(
                f"{self.name} was written to only in part ({len(writing.published)} books are stored, and "
                f"{len(writing.retracted)} pairs retracted), and its as_of is not known: "
                f"{reason_of(error).removeprefix(f'{self.name} was not written to: ')}"
            ) from None

    async def _write_rest(self, writing: _Writing) -> Receipt:
        """Store what is not stored yet of a change, one batch after the other. Raises `Conflict`."""
        change, done = writing.change, writing.published | writing.retracted
        needs_content = change.is_whole or bool(change.retract)
        if needs_content:
            content = await self._refresh()
            assert content.position is not None  # noqa: S101  # a bucket has positions
            stored, (values, gone) = _Stored(content.position, self._content.record), change.differences(content)
        else:
            if self._stored is None or writing.after is not None:
                self._stored = await self._retried(self._load, self._wait)
            stored, values, gone = self._stored, dict(change.bodies), set()
        self._require_position(writing.after, stored.position)
        rest = [pair for pair in [*values, *gone] if change.is_whole or pair not in done]
        while True:
            batch, rest = rest[:MAX_BATCH], rest[MAX_BATCH:]
            books = [pair for pair in batch if pair in values]
            deleted = batch[len(books) :]
            messages: Messages = [(key_of(pair), values[pair], {}) for pair in books]
            messages += [(key_of(pair), b"", dict(DELETION)) for pair in deleted]
            record = writing.record_after(stored.record, is_last=not rest)
            self._stored = None
            position = await self._commit(messages or [(HEARTBEAT_KEY, b"", {})], record, stored.position)
            stored = self._stored = _Stored(position, record)
            if needs_content:
                self._content.take_over([change.books[pair] for pair in books], deleted, record, position)
            writing.last = record.change
            writing.published.update(books)
            writing.retracted.update(deleted)
            writing.until = monotonic() + self._wait
            if not rest:
                return Receipt(
                    len(writing.published), len(writing.retracted), position=position, freshness=record.freshness
                )

    async def _commit(self, messages: Messages, record: Record, position: Position) -> Position:
        """Store a batch with its record if this is the position of the bucket. Return the next position.

        Raises `Conflict`, `UnknownOutcome`, `Unreachable` or `Rejected`.
        """
        may_be_stored = False
        key, value, headers = messages[-1]
        batch = [*messages[:-1], (key, value, headers | record.headers())]

        async def attempt() -> Position:
            nonlocal may_be_stored
            try:
                sequence = await self._bucket.commit(batch, position.number)
                return evolve(position, number=sequence)
            except Unreachable as error:
                may_be_stored = may_be_stored or not isinstance(error, NotStored)
                raise
            except Rejected as error:
                if error.code not in WRONG_SEQUENCE:
                    raise
            stored = await self._load()
            if stored.record.change == record.change:
                return stored.position
            if stored.position == position:
                # The leader also counts what it has proposed to the other servers, such as the last attempt.
                raise NotStored("the servers have not agreed on an earlier change")
            # Otherwise the bucket was rolled back or created again, without the change.
            may_be_overwritten = stored.position.run == position.run and stored.position.number > position.number
            if may_be_stored and may_be_overwritten:
                raise UnknownOutcome(
                    f"{self.name} did not acknowledge a change, and others have changed it since: it may be lost"
                )
            raise Conflict(f"{self.name} was not written to: others have changed it")

        try:
            return await self._retried(attempt, self._wait)
        except (Unreachable, Rejected) as error:
            if may_be_stored:
                raise UnknownOutcome(
                    f"{self.name} did not acknowledge a change within {self._wait:g} seconds ({error}): it may be "
                    "stored, now or later, but only if no other change is stored before"
                ) from None
            raise


def open_nats_store(target: str, *, wait: float = WAIT_SECONDS, create: bool = True) -> NatsStore:
    """Open a bucket for publishing; create it if it does not exist and `create` is true. Raises `StoreError`."""
    try:
        store = NatsStore(Address.parse(target), wait)
    except ValueError as error:
        raise StoreError(f"{shown_name(target)} cannot be opened: {error}") from None
    store.open(create=create)
    return store
