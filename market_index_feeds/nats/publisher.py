"""Publishes changes into a bucket, and remembers the last sequence of each key.

Theory of operation
===================

A write names its expected sequence: that of the last message of its key, which is read if the publisher does not know
it. The server stores the write only if that is still the last one (compare-and-set). So at most one of several writes
with the same expected sequence is stored, and a write that arrives late never overwrites a newer one.

Many writes are in flight at the same time. The publish of a write has one of these outcomes:

- STORED, with its sequence; REJECTED, with the reason. Both are final.
- CONTESTED: another publisher has changed the key since. The last message is read, and the write published again. A
  record that depends on the last message, as a freshness with the stored as_of, is `derived` from it again.
- UNKNOWN: there was no reply, so the write may be stored, now or later. It is published again with the same expected
  sequence. If that is CONTESTED, and a later message with the content of the write is the last one, it is STORED.

`Publisher.unacknowledged` has the keys with an UNKNOWN write beyond the call, until a later write of the key is stored:
from then on the UNKNOWN one expects too old a sequence.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from market_index import wire
from market_index_feeds.backoff import SHORTEST_SECONDS
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import OPERATION_HEADER, BucketState, Message
from market_index_feeds.nats.connection import (
    OPENING,
    BucketConnection,
    BucketServers,
    Delivery,
    RetryTimeouts,
    Sent,
    sequence_of,
)
from market_index_feeds.nats.errors import (
    TOO_LARGE,
    WRONG_SEQUENCE,
    Contested,
    NoBucket,
    RequestRejected,
    Retryable,
    Unanswered,
)
from market_index_feeds.nats.records import Record, has_content_of, pair_of
from market_index_feeds.nats.watch import Watch
from market_index_feeds.nats.writes import Outcome, Write, WriteBatch
from market_index_feeds.store import StoreBusy, StoreError, Unacknowledged

ATTEMPT_SECONDS: Final = 2.0
"""Timeout of a reply to a write. The next attempt may use another server."""

MAX_IN_FLIGHT: Final = 256
MAX_BYTES_IN_FLIGHT: Final = 4 * 1024 * 1024

_EXPECTED_HEADER: Final = "Nats-Expected-Last-Subject-Sequence"
_DELETION: Final[Mapping[str, str]] = {OPERATION_HEADER: "DEL"}
_MAX_REQUESTS: Final = 64


@frozen
class StoredKey:
    """The last message of a key: its sequence, whether it is a deletion, and whether it is the book to be stored."""

    sequence: int
    is_deletion: bool
    is_same: bool


class Publisher:
    """Writes to one bucket, from one task at a time.

    `sequences` has the last sequence of each key, as far as it is known; 0 if there is no message. `created` is the
    creation time of the bucket that was last read as a whole, None before. `revision` is its last sequence, unless
    another publisher has written since.
    """

    def __init__(self, address: Address, target: str, wait: float, opening: RetryTimeouts = OPENING) -> None:
        self.sequences: dict[str, int] = {}
        self.unacknowledged: set[str] = set()
        self.created: str | None = None
        self.revision: int = 0
        self._servers = BucketServers(address)
        self._replicas = address.replicas
        self._target = target
        self._wait = wait
        self._opening = opening
        self._timeouts = RetryTimeouts(wait, wait)

    async def open(self, *, create: bool) -> None:
        """Connect, and create a missing bucket. Raises `Misconfigured`, and `NoBucket` unless `create`."""

        async def require_bucket(connection: BucketConnection) -> None:
            try:
                await connection.state()
            except NoBucket:
                if not create:
                    raise
                await connection.create(self._replicas)

        await self._servers.run(require_bucket, self._opening)

    async def close(self) -> None:
        """Disconnect."""
        await self._servers.disconnect()

    async def state(self) -> BucketState:
        """Return the state of the bucket."""
        return await self._servers.run(BucketConnection.state, self._timeouts)

    def has_all_keys(self, state: BucketState) -> bool:
        """Return whether a bucket has all keys that were read or written: it was not purged or created again."""
        known = sum(sequence > 0 for sequence in self.sequences.values())
        return state.created == self.created and state.keys >= known

    async def last(self, keys: Iterable[str]) -> dict[str, Message | None]:
        """Return the last message of each key."""
        some = list(keys)
        return await self._servers.run(lambda connection: self._last(connection, some), self._timeouts)

    async def stored_among(self, keys: Iterable[str]) -> set[str]:
        """Return the keys that have a value."""
        found = await self.last(keys)
        return {key for key, last in found.items() if last is not None and last.value is not None}

    async def read_all(self, records: Mapping[str, Record]) -> dict[str, StoredKey]:
        """Return the last message of each key of the bucket.

        The whole values are compared with those of the records: a digest alone does not show what a reader reads.
        """
        stored: dict[str, StoredKey] = {}

        def add(messages: list[Message]) -> None:
            for message in messages:
                is_same = has_content_of(records.get(message.key), message)
                stored[message.key] = StoredKey(message.sequence, message.value is None, is_same)

        async def read(connection: BucketConnection) -> Watch:
            stored.clear()
            watch = await Watch.open(connection)
            await watch.read_all(add)
            await watch.close()
            return watch

        watch = await self._servers.run(read, self._timeouts, lambda: len(stored))
        self.sequences = dict.fromkeys(records, 0) | {key: last.sequence for key, last in stored.items()}
        self.created, self.revision = watch.stored.created, watch.revision
        return stored

    async def write(self, batch: WriteBatch) -> None:
        """Publish writes until each is stored or rejected.

        Raises `Unacknowledged`, `StoreBusy` or `StoreError` if nothing more is stored for `wait` seconds.
        """
        count = len(batch.writes)
        try:
            await self._servers.run(
                lambda connection: self._attempt(connection, batch),
                self._timeouts,
                lambda: count - len(batch.unfinished),
            )
        except Retryable as error:
            raise self._error_of(batch, error) from None

    async def _attempt(self, connection: BucketConnection, batch: WriteBatch) -> None:
        """Publish every unfinished write once. Raises a `Retryable` error unless all are final then."""
        await self._read_unknown(connection, batch.unfinished)
        await self._publish(connection, batch.unfinished)
        unfinished = batch.unfinished
        if any(write.outcome is None for write in unfinished):
            await connection.state()  # raises NoBucket if it is gone
            raise Unanswered("no stream stores its messages")
        if unfinished:
            raise Contested("others wrote at the same time")

    async def _read_unknown(self, connection: BucketConnection, writes: list[Write]) -> None:
        """Read the last message of each key whose sequence is not known: it may be the write of an earlier attempt."""
        unknown = {write.key: write for write in writes if write.key not in self.sequences}
        for key, last in (await self._last(connection, unknown)).items():
            write = unknown[key]
            if last is not None and key in self.unacknowledged and write.may_be(last):
                self._store(write, last.sequence)
            elif write.derived is not None:
                write.record = write.derived(last)

    async def _last(self, connection: BucketConnection, keys: Iterable[str]) -> dict[str, Message | None]:
        """Return the last message of each key, and remember their sequences."""
        found: dict[str, Message | None] = {}
        remaining = list(keys)
        while remaining:
            some, remaining = remaining[:_MAX_REQUESTS], remaining[_MAX_REQUESTS:]
            found.update(zip(some, await asyncio.gather(*map(connection.last, some)), strict=True))
        self.sequences |= {key: 0 if last is None else last.sequence for key, last in found.items()}
        return found

    async def _publish(self, connection: BucketConnection, writes: list[Write]) -> None:
        """Publish writes, and wait for the outcome of each. Raises `Unreachable` or `PermissionError`."""
        in_flight: deque[tuple[Write, Sent]] = deque()
        seconds = max(min(self._wait, ATTEMPT_SECONDS), SHORTEST_SECONDS)

        async def wait_for_oldest() -> int:
            write, sent = in_flight[0]
            if not sent.done():
                await connection.wait_for(sent, seconds)
            in_flight.popleft()
            self._record(write, sent.result())
            return write.length

        length = 0
        try:
            for write in writes:
                # Another server may accept less than the one before.
                limit = _exceeded_limit(write, connection.max_value_bytes)
                if limit:
                    write.reject("it is too large", limit)
                    continue
                write.outcome = Outcome.UNKNOWN
                in_flight.append((write, await self._send(connection, write)))
                length += write.length
                while len(in_flight) >= MAX_IN_FLIGHT or length >= MAX_BYTES_IN_FLIGHT:
                    length -= await wait_for_oldest()
            while in_flight:
                await wait_for_oldest()
        finally:
            for write, sent in in_flight:
                if not sent.cancel():
                    self._record(write, sent.result())
            self.unacknowledged.update(write.key for write in writes if write.outcome is Outcome.UNKNOWN)

    async def _send(self, connection: BucketConnection, write: Write) -> Sent:
        value, headers = (b"", _DELETION) if write.record is None else (write.record.value, write.record.headers)
        write.expected = self.sequences[write.key]
        return await connection.publish(write.key, value, {**headers, _EXPECTED_HEADER: str(write.expected)})

    def _record(self, write: Write, reply: Delivery) -> None:
        """Record the outcome that the reply to a write shows."""
        try:
            self._store(write, sequence_of(reply))
        except Unanswered:
            write.outcome = None
        except RequestRejected as error:
            if error.code in WRONG_SEQUENCE:
                write.outcome = Outcome.CONTESTED
                del self.sequences[write.key]
            elif error.code == TOO_LARGE and write.record is not None:
                write.reject(str(error), "as many bytes as max_msg_size of the bucket allows")
            else:
                write.reject(str(error))

    def _store(self, write: Write, sequence: int) -> None:
        write.store(sequence)
        self.sequences[write.key] = sequence
        self.unacknowledged.discard(write.key)
        self.revision += 1

    def _error_of(self, batch: WriteBatch, error: Retryable) -> StoreError:
        """Return the error of a change that is not stored in time."""
        unfinished = batch.unfinished
        keys = [write.key for write in unfinished if write.key in self.unacknowledged]
        count = f"{len(unfinished)} of {len(batch.writes)} changes"
        if keys:
            return Unacknowledged(
                f"{self._target} did not acknowledge {count} in {self._wait:g} seconds ({error}): {len(keys)} of them "
                f"were sent, and may still be stored, but they overwrite no later change",
                tuple(pair for pair in map(pair_of, keys) if pair is not None),
            )
        if isinstance(error, Contested):
            return StoreBusy(
                f"{self._target} was not written to: others wrote the same pairs for {self._wait:g} seconds"
            )
        return StoreError(f"{self._target} was not written to: {error}; {count} were not made")


def _exceeded_limit(write: Write, max_bytes: int) -> str:
    """Return the limit that a write exceeds over a connection that accepts at most `max_bytes`; empty if none."""
    if write.length > wire.MAX_ORDER_BOOK_BYTES:
        return f"{wire.MAX_ORDER_BOOK_BYTES} bytes of JSON"
    return f"{max_bytes} bytes, deflated" if write.length > max_bytes else ""
