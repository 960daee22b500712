"""Reads a bucket: asks for what follows the last message that was read, and for the whole if that does not fit.

Theory of operation
===================

The servers store the last message of each key. A page without messages after it completes the content of one moment
between two changes. The pages may come from several servers of a cluster, and some may be behind. So the leader is
asked for its last sequence before each page, and the last page must reach it: then no page before it is newer.

The content follows from what was read as long as the bucket has the same creation time, the last sequence is not below
the one that was read, and, if both are equal, there are as many messages as keys were read. Otherwise the bucket was
created again, rolled back or purged, and all of it is read again. So it is after each connection, because sequences
repeat after a rollback.

The headers of the last message are the record of the last change. If it has none, another program wrote it, and the
freshness is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import Final

from market_index import InvalidFreshness, MarketIndexError, Pair
from market_index_feeds.errors import FeedError, Unreachable
from market_index_feeds.event_loop import pulled
from market_index_feeds.names import shown_name
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import OPENING_SECONDS, Bucket, Message, State, retried, shown_text
from market_index_feeds.nats.values import HEARTBEAT_KEY, Record, book_of, pair_of
from market_index_feeds.source import UNKNOWN, NoVersion, Position, Progress, Source, Version

CHECK_SECONDS: Final = 1.0
"""Interval between two comparisons with the bucket if no change wakes the reader."""

BEHIND_SECONDS: Final = 1.0
"""How long servers may be behind the leader."""

_BEHIND_POLL_SECONDS: Final = 0.005


class NatsSource(Source):
    """A bucket. `record` is that of its last change."""

    def __init__(self, address: Address) -> None:
        super().__init__(address.shown)
        self.bucket: Bucket = Bucket(address)
        self.record: Record = Record()
        # What was read last, and the last version that no unfinished change is a part of.
        self._found: Version | NoVersion | None = None
        self._whole: Version | None = None
        self._connection = 0
        self._created = ""
        self._sequence = self._length = 0
        self._last: Message | None = None
        # The keys of the last version, and the messages that were read since then, or since the start of the bucket.
        self._keys: set[str] = set()
        self._read: dict[str, Message] = {}
        self._is_from_start = True
        # The pairs and the faults of the keys whose values are invalid.
        self._invalid: dict[str, tuple[Pair, MarketIndexError]] = {}

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Yield the content, then that after each change. The first connection is retried for some seconds."""
        # The progress is that of the pages that are read.
        return pulled(self._versions(progress), stop, None)

    async def refresh(self, progress: Progress | None = None) -> Version | NoVersion:
        """Read what has changed into `content`, and return the version: the same object if nothing has changed.

        Raises `Unreachable` or `Rejected`. What was read so far is not read again.
        """
        deadline, is_read = monotonic() + BEHIND_SECONDS, False
        while not is_read:
            state = await self.bucket.state()
            if self._connection != self.bucket.connections or not self._leads_to(state):
                self._connection, self._created = self.bucket.connections, state.created
                self._sequence, self._length, self._last = 0, 0, None
                self._read, self._is_from_start = {}, True
            if not state.messages:
                self._sequence = state.sequence
            elif self._sequence < state.sequence and await self._read_page():
                if progress is not None:
                    progress(min(self._length, state.length), state.length)
                deadline = monotonic() + BEHIND_SECONDS
                continue
            is_read = self._sequence > state.sequence or self._is_same(state)
            if not is_read:
                if monotonic() > deadline:
                    raise Unreachable("the servers do not agree on what is stored")
                await asyncio.sleep(_BEHIND_POLL_SECONDS)
                last = await self.bucket.find({"last_by_subj": self.bucket.subject(">")})
                if last is not None and last.sequence == self._sequence:
                    # Nothing is behind: the last message was purged.
                    self._sequence = state.sequence
        return self._apply()

    async def _versions(self, progress: Progress | None) -> AsyncGenerator[Version | NoVersion, None]:
        has_changed = asyncio.Event()
        has_changed.set()
        self.bucket.on_change = has_changed.set
        try:
            while True:
                yield await self._wait_and_read(has_changed, progress)
        finally:
            await self.bucket.close()

    async def _wait_and_read(self, has_changed: asyncio.Event, progress: Progress | None) -> Version | NoVersion:
        with suppress(TimeoutError):
            await asyncio.wait_for(has_changed.wait(), CHECK_SECONDS)
        has_changed.clear()
        if self.last is None:
            found = await retried(lambda: self.refresh(progress), OPENING_SECONDS)
        else:
            found = await self.refresh()
        if isinstance(found, NoVersion):
            self._whole = None
            return found
        if not self.record.is_unfinished:
            self._whole = found
        return self._whole or NoVersion("contains no whole change: its last one is not finished")

    async def _read_page(self) -> int:
        """Read the messages after the last one. Return how many follow them."""
        messages, pending = await self.bucket.read_page(self._sequence)
        for message in messages:
            self._read[message.key] = self._last = message
            self._sequence = message.sequence
        self._length += sum(len(message.value or b"") for message in messages)
        return pending

    def _leads_to(self, state: State) -> bool:
        """Whether what was read is the first part of what is stored now."""
        return state.created == self._created and (state.sequence > self._sequence or self._is_same(state))

    def _is_same(self, state: State) -> bool:
        """Whether what was read is all that is stored now."""
        keys = self._read.keys() if self._is_from_start else self._keys | self._read.keys()
        return state.sequence == self._sequence and state.messages == len(keys)

    def _apply(self) -> Version | NoVersion:
        """Return the version that follows from the messages that were read."""
        if self._found is not None and not self._read and not self._is_from_start:
            return self._found
        if self._is_from_start:
            self._keys, self._invalid = set(), {}
        books, gone = [], list[Pair]()
        for key, message in self._read.items():
            self._keys.add(key)
            self._invalid.pop(key, None)
            if message.value is None:
                gone += [pair for pair in [pair_of(key)] if pair is not None]
            elif key != HEARTBEAT_KEY:
                try:
                    books.append(book_of(key, message.value))
                except MarketIndexError as error:
                    if (pair := pair_of(key)) is not None:
                        self._invalid[key] = pair, error
                    else:
                        self.reject(f"value {shown_text(key)}", error)  # it is only counted
        self.reject_new({f"value {shown_text(key)}": error for key, (_, error) in self._invalid.items()})
        self.record = self._last_record()
        self._found = self.derive(
            books,
            gone,
            invalid={pair for pair, _ in self._invalid.values()},
            is_whole=self._is_from_start,
            freshness=UNKNOWN if self.record.is_unfinished else self.record.freshness,
            position=Position(self._created, self._sequence),
        )
        self._read, self._is_from_start = {}, False
        return self._found

    def _last_record(self) -> Record:
        """Return the record of the last message; nothing is known if that was purged, or is invalid."""
        if self._last is None or self._last.sequence != self._sequence:
            return Record()
        try:
            return Record.of(self._last)
        except InvalidFreshness as error:
            self.reject(f"record {self._sequence}", error)
            return Record()


def open_nats_source(source: str) -> NatsSource:
    """Open a bucket for following. It is connected to when the feed is started.

    Raises `FeedError` if it is not the URL of a bucket.
    """
    try:
        return NatsSource(Address.parse(source))
    except ValueError as error:
        raise FeedError(f"{shown_name(source)} cannot be opened: {error}") from None
