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
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from threading import Lock
from time import monotonic
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

from attrs import evolve, frozen

from market_index import Freshness, InvalidFreshness, OrderBook, Pair, wire
from market_index_feeds.errors import reason_of
from market_index_feeds.event_loop import blocking, run
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import (
    MAX_BATCH,
    OPENING_SECONDS,
    WRONG_SEQUENCE,
    NotStored,
    Rejected,
    Unreachable,
    retried,
)
from market_index_feeds.nats.reading import NatsSource
from market_index_feeds.nats.values import DELETION, HEARTBEAT_KEY, Record, key_of, value_of
from market_index_feeds.opened import shown_name
from market_index_feeds.source import Position, Version
from market_index_feeds.store import (
    BookTooLarge,
    Conflict,
    Receipt,
    Store,
    StoreBusy,
    StoreError,
    UnknownOutcome,
    books_by_pair,
    checked_pairs,
    published_now,
)

T = TypeVar("T")

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
        super().__init__(address.shown)
        self._wait = wait
        self._content = NatsSource(address)
        self._bucket = self._content.bucket
        # None: it must be read, because another program may have changed it.
        self._stored: _Stored | None = None
        self._lock = Lock()
        self._runner = asyncio.Runner()
        self._is_closed = False

    def open(self, *, create: bool) -> None:
        """Connect, and create the bucket if it does not exist. Raises `StoreError`."""
        opening = retried(lambda: self._bucket.open(create=create), OPENING_SECONDS)
        try:
            self._run(opening, "cannot be opened")
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> Position:
        """The position after the last change by any program."""
        state = self._run(retried(self._bucket.state, self._wait), "cannot be read")
        return Position(state.created, state.sequence)

    def read(self) -> Version:
        """Return the content. While a change is unfinished, it is a mixture, with an invalid record of any pair."""
        return self._run(self._read(), "cannot be read")

    def update(
        self,
        books: Iterable[OrderBook],
        retract: Iterable[Pair] = (),
        freshness: Freshness | None = None,
        *,
        after: Position | None = None,
    ) -> Receipt:
        """Retract pairs and store books. More than 1,000 are several batches, and readers wait for the last one."""
        by_pair = books_by_pair(books)
        pairs = checked_pairs(retract) - by_pair.keys()
        values = self._values(by_pair)
        return self._run(self._update(values, pairs, freshness, after), "was not written to")

    def replace(self, books: Iterable[OrderBook], freshness: Freshness | None = None) -> Receipt:
        """Make these books the whole content."""
        by_pair = books_by_pair(books)
        values = self._values(by_pair)
        freshness = freshness or Freshness()
        return self._run(self._replace(by_pair, values, freshness), "was not written to")

    def close(self) -> None:
        """Disconnect, after the call of another thread. Closing twice does no harm."""
        if self.is_forked:
            return
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                run(self._runner, self._bucket.close())
                blocking(self._runner.close)

    def _run(self, work: Coroutine[Any, Any, T], action: str) -> T:
        try:
            self.require_own_process()
            with self._lock:
                if self._is_closed:
                    raise StoreError(f"{self.name} is closed")
                return run(self._runner, work)
        except (Unreachable, Rejected, OSError) as error:
            raise StoreError(f"{self.name} {action}: {reason_of(error)}") from None
        finally:
            work.close()  # it was not started if the store cannot be used

    def _values(self, books: Mapping[Pair, OrderBook]) -> dict[Pair, bytes]:
        """Return the values of books. Raises `BookTooLarge`."""
        values = {pair: value_of(book) for pair, book in books.items()}
        limit = min(self._bucket.max_value_bytes, wire.MAX_ORDER_BOOK_BYTES)
        large = tuple(pair for pair, value in values.items() if len(value) > limit)
        if large:
            others = f" and those of {len(large) - 1} others" if len(large) > 1 else ""
            what = "bytes of JSON" if limit == wire.MAX_ORDER_BOOK_BYTES else "bytes, deflated"
            raise BookTooLarge(
                f"{self.name} does not accept the book of {large[0]}{others}: it must have at most {limit} {what}, "
                f"got {len(values[large[0]])}; nothing was written",
                large,
            )
        return values

    async def _read(self) -> Version:
        version = await retried(self._content.refresh, self._wait)
        return evolve(version, invalid=version.invalid | {None}) if self._content.record.is_unfinished else version

    async def _load(self) -> _Stored:
        """Read the position and the record of the bucket."""
        state = await self._bucket.state()
        message = await self._bucket.find({"seq": state.sequence}) if state.sequence else None
        try:
            record = Record.of(message)
        except InvalidFreshness:
            record = Record()
        return _Stored(Position(state.created, state.sequence), record)

    async def _update(
        self, values: Mapping[Pair, bytes], pairs: set[Pair], freshness: Freshness | None, after: Position | None
    ) -> Receipt:
        async def attempt() -> Receipt:
            stored, gone = self._stored, set[Pair]()
            if pairs:
                # Only pairs that are stored are retracted, and counted.
                content = await retried(self._content.refresh, self._wait)
                stored, gone = self._stored_as(content), _pairs_of(content) & pairs
            elif stored is None or after is not None:
                stored = await retried(self._load, self._wait)
            if after is None and stored.record.is_unfinished:
                raise StoreError(
                    f"{self.name} must be replaced as a whole, because its last change of more than {MAX_BATCH} "
                    "books was not finished (publish --replace, or a relay)"
                )
            if after not in {None, stored.position}:
                raise self._conflict()
            given = Freshness(stored.record.freshness.as_of) if freshness is None else freshness
            return await self._write(values, gone, given, stored.position)

        return await (attempt() if after is not None else self._without_conflict(attempt))

    async def _replace(
        self, books: Mapping[Pair, OrderBook], values: Mapping[Pair, bytes], freshness: Freshness
    ) -> Receipt:
        async def attempt() -> Receipt:
            content = await retried(self._content.refresh, self._wait)
            before, invalid = content.index, content.invalid
            changed = {
                pair: values[pair] for pair, book in books.items() if pair in invalid or before.get(pair) != book
            }
            gone = _pairs_of(content) - books.keys()
            return await self._write(changed, gone, freshness, self._stored_as(content).position)

        return await self._without_conflict(attempt)

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
                    raise StoreBusy(
                        f"{self.name} was not written to: others have been writing for {self._wait:g} seconds"
                    ) from None

    async def _write(
        self, values: Mapping[Pair, bytes], gone: Collection[Pair], freshness: Freshness, position: Position
    ) -> Receipt:
        """Store a change, if this is the position of the bucket. Raises `Conflict` if it is not."""
        self._stored = None
        if freshness.published_at is None:
            freshness = published_now(freshness.as_of)
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
        return Receipt(position.number, len(values), len(gone), position)

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
            raise self._conflict()

        try:
            return await retried(attempt, self._wait)
        except (Unreachable, Rejected) as error:
            if may_be_stored:
                raise UnknownOutcome(
                    f"{self.name} did not acknowledge a change within {self._wait:g} seconds ({error}): it may be "
                    "stored, now or later, but only if no other change is stored before"
                ) from None
            raise

    def _conflict(self) -> Conflict:
        return Conflict(f"{self.name} was not written to: others have changed it")


def _pairs_of(content: Version) -> set[Pair]:
    """Return the pairs of all records, also of invalid ones."""
    return {pair for pair in {*content.index, *content.invalid} if pair is not None}


def open_nats_store(target: str, *, wait: float, make: bool = True) -> NatsStore:
    """Open a bucket for publishing; create it if it does not exist and `make` is true. Raises `StoreError`."""
    if not wait >= 0:
        raise ValueError(f"wait must be 0 or more seconds, got {wait}")
    try:
        store = NatsStore(Address.parse(target), wait)
    except ValueError as error:
        raise StoreError(f"{shown_name(target)} cannot be opened: {error}") from None
    store.open(create=make)
    return store
