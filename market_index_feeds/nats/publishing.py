"""The store in a bucket: each change is one atomic batch of messages. The headers of the last one are its record.

Theory of operation
===================

A batch expects the last sequence of the bucket, so it is stored only if no other change was stored before it. If the
reply is lost, the same batch is sent again. At most one of the two is stored. If the second is rejected, the record of
the last message shows by its random id that the first was stored. After a change of another publisher, that is not
known any more: `UnknownOutcome`.

A change of one book is one plain message, which takes the servers a fraction of the time of a batch.

The servers accept 1,000 messages in a batch. A larger change is several batches, and the records of all but the last
one are marked as unfinished: readers show no content as long as that is so. If the publisher ends in between, the
bucket must be replaced as a whole, because no other program has the rest of the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

from attrs import evolve, frozen

from market_index import Freshness, InvalidFreshness, OrderBook, Pair, wire
from market_index_feeds.errors import Conflict, NotStored, Rejected, StoreError, UnknownOutcome, Unreachable
from market_index_feeds.event_loop import blocking, run
from market_index_feeds.names import shown_name
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import MAX_BATCH, OPENING_SECONDS, WRONG_SEQUENCE, retried
from market_index_feeds.nats.reading import NatsSource
from market_index_feeds.nats.values import DELETION, HEARTBEAT_KEY, Record, key_of, value_of
from market_index_feeds.source import Position, Version
from market_index_feeds.store import WAIT_SECONDS, CheckedChange, Receipt, Store

Messages: TypeAlias = list[tuple[str, bytes, dict[str, str]]]
"""Keys, values and headers."""


@frozen
class _Stored:
    """The position of the bucket and its record, which has no freshness if it is not the last message."""

    position: Position
    record: Record


class NatsStore(Store):
    """A bucket, opened for publishing. A change is retried for `wait` seconds while the servers do not answer."""

    def __init__(self, address: Address, wait: float) -> None:
        super().__init__(address.shown, wait)
        self._content = NatsSource(address)
        self._bucket = self._content.bucket
        # None: it must be read, because another program may have changed it.
        self._stored: _Stored | None = None
        self._runner = asyncio.Runner()

    def open(self, *, create: bool) -> None:
        """Connect, and create the bucket if it does not exist. Raises `StoreError`."""
        try:
            with self._turn("cannot be opened"):
                run(self._runner, retried(lambda: self._bucket.open(create=create), OPENING_SECONDS))
        except BaseException:
            self.close()
            raise

    def _position(self) -> Position:
        state = run(self._runner, retried(self._bucket.state, self._wait))
        return Position(state.created, state.sequence)

    def _read(self) -> Version:
        """Return the content. While a change is unfinished, it is a mixture, with an invalid record of any pair."""
        content = run(self._runner, self._refresh())
        return evolve(content, invalid=content.invalid | {None}) if self._content.record.is_unfinished else content

    def _write(self, change: CheckedChange, after: Position | None) -> Receipt:
        return run(self._runner, self._changed(change, after))

    def _close(self) -> None:
        run(self._runner, self._bucket.close())
        blocking(self._runner.close)

    def _encoded(self, book: OrderBook) -> bytes:
        return value_of(book)

    @property
    def _max_body_bytes(self) -> int:
        return min(self._bucket.max_value_bytes, wire.MAX_ORDER_BOOK_BYTES)

    async def _refresh(self) -> Version:
        """Return the content, after reading what has changed."""
        await retried(self._content.refresh, self._wait)
        return self._content.content

    async def _load(self) -> _Stored:
        """Read the position and the record of the bucket."""
        state = await self._bucket.state()
        message = await self._bucket.find({"seq": state.sequence}) if state.sequence else None
        try:
            record = Record.of(message)
        except InvalidFreshness:
            record = Record()
        return _Stored(Position(state.created, state.sequence), record)

    async def _changed(self, change: CheckedChange, after: Position | None) -> Receipt:
        async def attempt() -> Receipt:
            if change.retract or change.is_whole:
                # Only pairs that are stored are retracted, and counted.
                content = await self._refresh()
                stored, (values, gone) = self._stored_as(content), change.differences(content)
            else:
                if self._stored is None or after is not None:
                    self._stored = await retried(self._load, self._wait)
                stored, values, gone = self._stored, dict(change.bodies), set[Pair]()
            if after is None and stored.record.is_unfinished and not change.is_whole:
                raise StoreError(
                    f"{self.name} must be replaced as a whole, because its last change of more than {MAX_BATCH} "
                    "books was not finished (publish --replace, or a relay)"
                )
            self._require_position(after, stored.position)
            return await self._send(values, gone, change.freshness_after(stored.record.freshness), stored.position)

        return await (attempt() if after is not None else self._without_conflict(attempt))

    def _stored_as(self, content: Version) -> _Stored:
        """Return the position and the record of the content that was read."""
        assert content.position is not None  # noqa: S101  # a bucket has positions
        return _Stored(content.position, self._content.record)

    async def _without_conflict(self, attempt: Callable[[], Awaitable[Receipt]]) -> Receipt:
        """Return the result of an attempt that no other publisher interferes with."""
        until = monotonic() + self._wait
        while True:
            try:
                return await attempt()
            except Conflict:
                if monotonic() > until:
                    raise self._busy("was not written to") from None

    async def _send(
        self, values: Mapping[Pair, bytes], gone: Collection[Pair], freshness: Freshness, position: Position
    ) -> Receipt:
        """Store a change, if this is the position of the bucket. Raises `Conflict` if it is not."""
        self._stored = None
        messages: Messages = [(key_of(pair), b"", dict(DELETION)) for pair in gone]
        messages += [(key_of(pair), value, {}) for pair, value in values.items()]
        messages = messages or [(HEARTBEAT_KEY, b"", {})]
        while len(messages) > MAX_BATCH:
            unfinished = Record(freshness.without_as_of(), is_unfinished=True, change=uuid4().hex)
            position = await self._commit(messages[:MAX_BATCH], unfinished, position)
            messages = messages[MAX_BATCH:]
        record = Record(freshness, change=uuid4().hex)
        position = await self._commit(messages, record, position)
        self._stored = _Stored(position, record)
        return Receipt(len(values), len(gone), position=position, freshness=freshness)

    async def _commit(self, messages: Messages, record: Record, position: Position) -> Position:
        """Store a batch with its record, if this is the position of the bucket. Return the next position.

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
            except NotStored:
                raise
            except Unreachable:
                may_be_stored = True
                raise
            except Rejected as error:
                if error.code not in WRONG_SEQUENCE:
                    raise
            stored = await self._load()
            if stored.record.change == record.change:
                return stored.position
            # Otherwise the bucket was rolled back or created again, without the change.
            may_be_overwritten = stored.position.run == position.run and stored.position.number > position.number
            if may_be_stored and may_be_overwritten:
                raise UnknownOutcome(
                    f"{self.name} did not acknowledge a change, and others have changed it since: it may be lost"
                )
            raise Conflict(f"{self.name} was not written to: others have changed it")

        try:
            return await retried(attempt, self._wait)
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
