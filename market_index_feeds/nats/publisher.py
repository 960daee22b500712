"""Writes changes to a bucket until they are acknowledged, and remembers the last sequence of each key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Final

from attrs import frozen

from market_index_feeds.backoff import SHORTEST_SECONDS, next_backoff
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import Message, State
from market_index_feeds.nats.cluster import Cluster
from market_index_feeds.nats.errors import BUCKET_ERRORS, NoBucket, Unreachable
from market_index_feeds.nats.records import Record, has_content_of, pair_of
from market_index_feeds.nats.watch import Watch, WatchState
from market_index_feeds.nats.writes import FINAL, InFlight, Write, WriteState
from market_index_feeds.store import StoreBusy, StoreError, Unacknowledged

ATTEMPT_SECONDS: Final = 2.0
"""Timeout of an attempt with one server. The next attempt may use another server."""

_LOOKUPS: Final = 4
_LOOKUP_SECONDS: Final = 0.4
_MAX_REQUESTS: Final = 64


@frozen
class Stored:
    """The last message of a key: its sequence, whether it is a deletion, and whether it is the book to be stored."""

    sequence: int
    is_deletion: bool
    is_same: bool


class Change:
    """The writes of one call, by key; None deletes the key."""

    def __init__(self, records: Mapping[str, Record | None]) -> None:
        self.writes: list[Write] = [Write(key, record) for key, record in records.items()]
        self.acknowledged_at: float = monotonic()

    @property
    def unfinished(self) -> list[Write]:
        """The writes that are not in a final state: acknowledged, too large or rejected."""
        return [write for write in self.writes if write.state not in FINAL]

    @property
    def revision(self) -> int:
        """The sequence of the last acknowledged write; 0 if there is none."""
        return max((write.sequence or 0 for write in self.of(WriteState.ACKNOWLEDGED)), default=0)

    @property
    def written(self) -> set[str]:
        """The keys of the acknowledged writes."""
        return {write.key for write in self.of(WriteState.ACKNOWLEDGED)}

    @property
    def not_written(self) -> set[str]:
        """The keys of the other writes."""
        return {write.key for write in self.writes} - self.written

    def of(self, state: WriteState) -> list[Write]:
        """Return the writes in a state."""
        return [write for write in self.writes if write.state is state]


class Publisher:
    """Writes to one bucket, from one task at a time.

    `sequences` has the last known sequence of each key. A key is in `unacknowledged` while a write of an earlier
    attempt or call may still be stored under it. `written` counts the acknowledged writes, and `listed` the keys that
    the last attempt of `stored` has read.
    """

    def __init__(self, address: Address, target: str, wait: float) -> None:
        self.cluster: Cluster = Cluster(address)
        self.sequences: dict[str, int] = {}
        self.unacknowledged: set[str] = set()
        self.written: int = 0
        self.listed: int = 0
        self._replicas = address.replicas
        self._target = target
        self._wait = wait

    async def require_bucket(self, *, create: bool) -> None:
        """Create the bucket if it does not exist. Raises `Misconfigured`, and `NoBucket` unless it is to be created."""
        connection = await self.cluster.connect()
        # A server that has just become the leader may not know the bucket yet.
        lookups = _LOOKUPS if connection.is_clustered and create else 1
        for lookup in range(lookups):
            await asyncio.sleep(_LOOKUP_SECONDS if lookup else 0)
            try:
                await connection.state()
            except NoBucket:
                if not create:
                    raise
            else:
                return
        await connection.create(self._replicas)

    async def state(self) -> State:
        """Return the state of the bucket."""
        return await (await self.cluster.connect()).state()

    async def revision(self) -> int:
        """Return the sequence of the last message of the bucket."""
        return (await self.state()).last_sequence

    async def last(self, keys: Iterable[str]) -> dict[str, Message | None]:
        """Return the last message of each key."""
        connection = await self.cluster.connect()
        found: dict[str, Message | None] = {}
        remaining = list(keys)
        while remaining:
            some, remaining = remaining[:_MAX_REQUESTS], remaining[_MAX_REQUESTS:]
            found.update(zip(some, await asyncio.gather(*map(connection.last, some)), strict=True))
        return found

    async def stored_among(self, keys: Iterable[str]) -> set[str]:
        """Return the keys that have a value."""
        found = await self.last(keys)
        self.sequences.update((key, last.sequence) for key, last in found.items() if last is not None)
        return {key for key, last in found.items() if last is not None and last.value is not None}

    async def stored(self, records: Mapping[str, Record]) -> tuple[str, int, dict[str, Stored]]:
        """Return the creation time of the bucket, its revision, and the last message of each key at that revision.

        The whole values are compared with those of the records: a digest alone does not show what a reader reads.
        """
        stored: dict[str, Stored] = {}
        self.listed = 0
        watch = await Watch.open(await self.cluster.connect())
        try:
            while watch.state is not WatchState.IN_SYNC:
                for message in await watch.next():
                    record = records.get(message.key)
                    is_same = has_content_of(record, message.value, message.headers)
                    stored[message.key] = Stored(message.sequence, message.value is None, is_same)
                self.listed = len(stored)
        finally:
            await watch.close()
        return watch.stored.created, watch.revision, stored

    async def write(self, change: Change) -> None:
        """Write a change until every write is acknowledged, too large or rejected.

        Raises `Unacknowledged`, `StoreBusy` or `StoreError`, also if nothing was acknowledged for `wait` seconds.
        """
        backoff = 0.0
        # Reading what is stored may have taken a while since the change was made.
        change.acknowledged_at = monotonic()
        while change.unfinished:
            if backoff:
                await asyncio.sleep(backoff)
            backoff = next_backoff(backoff)
            problem = ""
            try:
                await self._attempt(change)
            except Unreachable as error:
                problem = str(error)
                await self.cluster.disconnect()
            if change.unfinished and monotonic() > change.acknowledged_at + self._wait:
                raise self._error_of(change, problem)

    async def _attempt(self, change: Change) -> None:
        """Send every unfinished write once. Raises `Unreachable`, `NoBucket`, `PermissionError` and `StoreError`."""
        connection = await self.cluster.connect()
        await self._resolve(change)
        writes = change.unfinished
        for write in writes:
            write.state, write.expected = WriteState.QUEUED, self.sequences.get(write.key, 0)
        seconds = max(change.acknowledged_at + self._wait - monotonic(), SHORTEST_SECONDS)
        in_flight = InFlight(connection, min(seconds, ATTEMPT_SECONDS))
        try:
            await in_flight.send(writes)
        finally:
            self._learn(writes)
            change.acknowledged_at = in_flight.acknowledged_at or change.acknowledged_at
        if change.of(WriteState.NO_STREAM):
            await connection.state()  # raises NoBucket if it is gone
        if limited := [write for write in change.of(WriteState.TOO_LARGE) if not write.limit]:
            limit = "as many bytes as the servers accept"
            with suppress(*BUCKET_ERRORS):
                limit = f"{(await connection.state()).max_message_bytes} bytes, deflated and with its headers"
            for write in limited:
                write.limit = limit

    def _learn(self, writes: list[Write]) -> None:
        """Record what an attempt showed about its keys."""
        for write in writes:
            if write.state is WriteState.UNACKNOWLEDGED:
                self.unacknowledged.add(write.key)
            elif write.state is WriteState.ACKNOWLEDGED and write.sequence is not None:
                self._acknowledged(write.key, write.sequence)
            elif write.state is WriteState.CONTESTED and write.key not in self.unacknowledged and write.derived is None:
                self._queue_again(write)

    def _queue_again(self, write: Write) -> None:
        """Queue a contested write again if its error has the last sequence of the key; otherwise that must be read."""
        if write.sequence is not None:
            self.sequences[write.key] = write.sequence
            write.state = WriteState.QUEUED

    def _acknowledged(self, key: str, sequence: int) -> None:
        self.sequences[key] = sequence
        self.unacknowledged.discard(key)
        self.written += 1

    async def _resolve(self, change: Change) -> None:
        """Read the last message of contested keys: it may be the same write, from an unacknowledged attempt."""
        contested = {write.key: write for write in change.of(WriteState.CONTESTED)}
        for key, last in (await self.last(contested)).items():
            write = contested[key]
            self.sequences[key] = 0 if last is None else last.sequence
            if last is not None and has_content_of(write.record, last.value, last.headers):
                write.acknowledge(last.sequence)
                self._acknowledged(key, last.sequence)
                change.acknowledged_at = monotonic()
            elif write.derived is not None:
                write.record = write.derived(last)

    def _error_of(self, change: Change, problem: str) -> StoreError:
        """Return the error of a change that is not acknowledged in time."""
        unfinished = change.unfinished
        keys = [write.key for write in unfinished if write.key in self.unacknowledged]
        pairs = tuple(pair for pair in map(pair_of, keys) if pair is not None)
        count = f"{len(unfinished)} of {len(change.writes)} changes"
        if keys:
            return Unacknowledged(
                f"{self._target} did not acknowledge {count} in {self._wait:g} seconds "
                f"({problem or 'others wrote at the same time'}): {len(keys)} of them were sent, and may still be "
                f"stored, but they overwrite no later change",
                pairs,
            )
        if problem:
            return StoreError(f"{self._target} was not written to: {problem}; {count} were not made")
        return StoreBusy(f"{self._target} was not written to: others wrote the same pairs for {self._wait:g} seconds")
