"""Reads a bucket: asks for what follows the last message that was read, and for all of it if that does not fit.

Theory of operation
===================

A bucket stores the last message of each key. A page without messages after it completes the content of one moment
between two batches. The pages may come from several servers of a cluster, and some may be behind. So the leader is
asked for its state before each page, and the last page must reach its sequence: then no page before it is newer.

What was read without a gap is a run. It leads to what is stored now if

- the connection is the same, because sequences repeat after a rollback,
- the bucket was not created again, and
- the last sequence is above the one that was read; or equal, and there are as many messages as keys were read.

Otherwise the bucket was created again, rolled back or purged, and a new run begins: all of it is read again.

The last message has the record of the last batch, with the freshness. See `record`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Generator, Iterable
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import Final

from attrs import define, evolve, field
from nats.js.api import StreamInfo, StreamState

from market_index import InvalidFreshness, MarketIndexError, OrderBook, Pair
from market_index_feeds.errors import Unreachable
from market_index_feeds.event_loop import pulled
from market_index_feeds.nats.address import BucketAddress
from market_index_feeds.nats.bucket import Bucket, Message
from market_index_feeds.nats.connection import shown_text
from market_index_feeds.nats.record import Mark, Record
from market_index_feeds.nats.values import HEARTBEAT_KEY, book_of, key_of, pair_of
from market_index_feeds.source import NoVersion, Position, Progress, Source, Version

OPENING_SECONDS: Final = 10.0
"""How long opening a bucket is retried: servers may have to start, and need about 6 seconds to elect a leader."""

CHECK_SECONDS: Final = 1.0
"""Interval between two comparisons with the bucket if no change wakes the reader."""

BEHIND_SECONDS: Final = 1.0
"""How long servers may be behind the leader."""

_BEHIND_POLL_SECONDS: Final = 0.005

_UNFINISHED: Final = "contains no whole change: its first one is not finished"


@define(eq=False)
class _Run:
    """What was read without a gap: up to `sequence`, messages under `keys`. `last` is the last one.

    `unapplied` has those that are not in the last version, by key. `is_new`: no version has followed from this run.
    """

    created: str = ""
    connection: int = 0
    sequence: int = 0
    keys: set[str] = field(factory=set)
    last: Message | None = None
    unapplied: dict[str, Message] = field(factory=dict)
    is_new: bool = True

    def add(self, message: Message) -> None:
        self.keys.add(message.key)
        self.unapplied[message.key] = self.last = message
        self.sequence = message.sequence

    def is_all_of(self, state: StreamState) -> bool:
        return state.last_seq == self.sequence and state.messages == len(self.keys)

    def leads_to(self, info: StreamInfo, connection: int) -> bool:
        is_same = (self.created, self.connection) == (position_of(info).run, connection)
        return is_same and (info.state.last_seq > self.sequence or self.is_all_of(info.state))


class NatsSource(Source):
    """A bucket. `record` is that of its last batch."""

    def __init__(self, address: BucketAddress) -> None:
        super().__init__(address.shown)
        self.bucket: Bucket = Bucket(address)
        self.record: Record = Record()
        self._run = _Run()
        self._found: Version | NoVersion | None = None
        # The pairs and the faults of the keys whose values are invalid.
        self._faults: dict[str, tuple[Pair, MarketIndexError]] = {}

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Yield the content, then that after each change. The first connection is retried for some seconds."""
        return pulled(self._versions(), stop, progress)

    async def refresh(self) -> Version | NoVersion:
        """Read what has changed into `content`, and return the version: the same object if nothing has changed.

        Raises `Unreachable` or `Rejected`. What was read so far is not read again.
        """
        deadline = monotonic() + BEHIND_SECONDS
        while True:
            info = await self.bucket.info()
            state = info.state
            if not self._run.leads_to(info, self.bucket.connection.count):
                self._run = _Run(position_of(info).run, self.bucket.connection.count)
            run = self._run
            if not state.messages:
                run.sequence = state.last_seq
            elif run.sequence < state.last_seq and await self._read_page():
                deadline = monotonic() + BEHIND_SECONDS
                continue
            if run.sequence > state.last_seq or run.is_all_of(state):
                return self._apply()
            if monotonic() > deadline:
                raise Unreachable("the servers do not agree on what is stored")
            await asyncio.sleep(_BEHIND_POLL_SECONDS)
            last = await self.bucket.find(subject=self.bucket.subject(">"))
            if last is not None and last.sequence == run.sequence:
                # Nothing is behind: the last message was purged.
                run.sequence = state.last_seq

    async def position(self) -> Position:
        """Return the position of the bucket. It is of another run if messages that were read are purged."""
        info = await self.bucket.info()
        position, run = position_of(info), self._run
        is_read = (run.created, run.sequence) == (position.run, position.number)
        return evolve(position, run="purged") if is_read and not run.is_all_of(info.state) else position

    def take_over(
        self,
        books: Collection[OrderBook],
        gone: Collection[Pair],
        record: Record,
        before: Position,
        after: Position,
    ) -> None:
        """Apply a batch to `content`, if this process has stored it directly after what was read."""
        if self._run.is_new or (self._run.created, self._run.sequence) != (before.run, before.number):
            return
        keys = {key_of(pair) for pair in [*[book.pair for book in books], *gone]} or {HEARTBEAT_KEY}
        self._run.keys |= keys
        self._run.sequence = after.number
        for key in keys:
            self._faults.pop(key, None)
        self._derive(books, gone, record)

    async def _versions(self) -> AsyncGenerator[Version | NoVersion, None]:
        has_changed = asyncio.Event()
        has_changed.set()
        self.bucket.on_change = has_changed.set
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(has_changed.wait(), CHECK_SECONDS)
                has_changed.clear()
                if self._found is None:
                    yield await self.bucket.connection.retried(self.refresh, OPENING_SECONDS)
                else:
                    yield await self.refresh()
        finally:
            await self.bucket.connection.close()

    async def _read_page(self) -> int:
        """Read the messages after the last one. Return how many follow them."""
        messages, following = await self.bucket.read_page(self._run.sequence)
        for message in messages:
            self._run.add(message)
        return following

    def _apply(self) -> Version | NoVersion:
        """Return the version that follows from the messages that were read."""
        run, books, gone = self._run, list[OrderBook](), list[Pair]()
        if self._found is not None and not run.unapplied and not run.is_new:
            return self._found
        if run.is_new:
            self._faults = {}
        for key, message in run.unapplied.items():
            self._faults.pop(key, None)
            if message.value is None:
                gone += [pair for pair in [pair_of(key)] if pair is not None]
            elif key != HEARTBEAT_KEY:
                try:
                    books.append(book_of(key, message.value))
                except MarketIndexError as error:
                    if (pair := pair_of(key)) is not None:
                        self._faults[key] = pair, error
                    else:
                        self.reject(f"value {shown_text(key)}", error)  # it is only counted
        return self._derive(books, gone, self._last_record())

    def _derive(self, books: Iterable[OrderBook], gone: Iterable[Pair], record: Record) -> Version | NoVersion:
        run, self.record = self._run, record
        self.reject_new({f"value {shown_text(key)}": error for key, (_, error) in self._faults.items()})
        self._found = self.derive(
            books,
            gone,
            invalid={pair for pair, _ in self._faults.values()},
            is_whole=run.is_new,
            incomplete=_UNFINISHED if record.mark is Mark.FIRST else None,
            freshness=record.freshness,
            position=Position(run.created, run.sequence),
        )
        run.unapplied, run.is_new = {}, False
        return self._found

    def _last_record(self) -> Record:
        """Return the record of the last message; nothing is known if that was purged, or is invalid."""
        run = self._run
        last = run.last if run.last is not None and run.last.sequence == run.sequence else None
        try:
            return Record.of(last, len(run.keys))
        except InvalidFreshness as error:
            self.reject(f"record {run.sequence}", error)
            return Record()


def position_of(info: StreamInfo) -> Position:
    """Return the position of a bucket. Its run is the time of its creation."""
    return Position(str(info.created), info.state.last_seq)
