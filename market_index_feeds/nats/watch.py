"""Watches a bucket: delivers every stored message, then every change, in the order of their sequences.

Theory of operation
===================

A consumer of the server delivers the last message of each key, then each new one. Deliveries alone do not show that
the consumer is gone, or that the bucket was created again, purged or rolled back. So the watch compares what was
delivered with the state that the servers report, every `CHECK_SECONDS`:

    CATCHING_UP ──equal──▶ IN_SYNC ──equal──▶ IN_SYNC ...
         └─────────────────────┴──▶ ENDED

- CATCHING_UP: stored messages are being delivered. Not all keys of the bucket have been delivered.
- IN_SYNC: the last comparison found that everything stored was delivered. Changes are delivered meanwhile; only the
  next comparison shows whether one is missing.
- ENDED: the watch delivers no more, and `next` raises the reason. `Lost`: the deliveries differ from the bucket, and
  will not become equal. A new watch reads the bucket from the start. Any other error: the server cannot be asked, as
  after the end of the connection.

A comparison first waits until the deliveries reach the last sequence that the servers report. Then the numbers of keys
must be equal; since every stored key was delivered, they are the same keys. The servers may answer for different
moments while the leader changes, so that only `COMPARISONS` unequal ones in a row end the watch.

The servers store the last message of a key only. One that is overwritten before it is delivered is never delivered, and
leaves a gap in the sequences: until the message that overwrote it is delivered, the book of its key is older than the
messages after the gap. It is among the messages up to the last sequence of a comparison that starts after the gap. So
the watch `is_complete` again when these were delivered without another gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from time import monotonic
from typing import Final

from market_index_feeds.nats.bucket import BucketState, Message, is_deletion
from market_index_feeds.nats.connection import CREATE_SECONDS, BucketConnection, Delivery, Subscription
from market_index_feeds.nats.errors import BUCKET_ERRORS, Lost, Unreachable

CHECK_SECONDS: Final = 0.5
"""Interval between comparisons with the state that the servers report."""

SILENCE_SECONDS: Final = 1.0
"""How long nothing may be delivered while the bucket contains more."""

COMPARISONS: Final = 4
"""How many comparisons in a row must find a difference."""

_CHECK_AGAIN_SECONDS: Final = 0.1
_REACH_SECONDS: Final = 0.005
_MAX_MESSAGES: Final = 256
_NANOSECONDS: Final = 1_000_000_000


class WatchState(Enum):
    """The states of a watch; see the module docstring."""

    CATCHING_UP = "stored messages are being delivered"
    IN_SYNC = "everything stored was delivered at the last comparison"
    ENDED = "nothing more is delivered"


class Watch:
    """A watch over one connection. `revision` is the sequence that it has reached, `stored` the state at its start."""

    _subscription: Subscription

    def __init__(self, connection: BucketConnection, stored: BucketState, check_seconds: float = CHECK_SECONDS) -> None:
        self.state: WatchState = WatchState.CATCHING_UP
        self.stored = stored
        self.revision: int = 0
        self._connection = connection
        self._check_seconds = check_seconds
        self._sequence = 0
        self._delivered = 0
        self._delivered_at = monotonic()
        # Gaps in the sequences, and how many of them the last comparison closed.
        self._gaps = self._closed_gaps = 0
        self._gap_found = asyncio.Event()
        self._keys: set[str] = set()
        # Sequences of the first message of a key, as far as they are above the last sequence that was compared.
        self._first_sequences: deque[int] = deque()
        self._incoming: deque[Delivery] = deque()
        # Set while `next` has something to return or to raise.
        self._is_ready = asyncio.Event()
        self._error: Exception = Lost("it was closed")
        self._comparing: asyncio.Task[None]

    @classmethod
    async def open(cls, connection: BucketConnection, check_seconds: float = CHECK_SECONDS) -> Watch:
        """Start to watch. Raises `Unreachable`, `NoBucket`, `Misconfigured` or `RequestRejected`."""
        watch = cls(connection, await connection.state(), check_seconds)
        inbox = connection.new_inbox()
        name = inbox.rpartition(".")[2]
        keys = f"{connection.prefix}>"
        consumer = {
            "name": name,
            "deliver_subject": inbox,
            "deliver_policy": "last_per_subject",
            "filter_subject": keys,
            "ack_policy": "none",
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": 5 * _NANOSECONDS,
            "inactive_threshold": 10 * _NANOSECONDS,
            "mem_storage": True,
            "num_replicas": 1,
        }
        watch._subscription = subscription = await connection.subscribe(inbox, watch._deliver)
        try:
            await connection.request(
                f"CONSUMER.CREATE.{connection.stream}.{name}.{keys}",
                {"stream_name": connection.stream, "config": consumer},
                CREATE_SECONDS,
            )
        except BaseException:
            await connection.unsubscribe(subscription)
            raise
        watch._comparing = asyncio.create_task(watch._compare_repeatedly())
        return watch

    @property
    def is_complete(self) -> bool:
        """Whether the delivered books are those of one moment: the messages after each gap have been delivered."""
        return self._gaps == self._closed_gaps

    async def read_all(self, add: Callable[[list[Message]], object]) -> None:
        """Call `add` with the messages until everything stored was delivered. If that fails, the watch is closed."""
        try:
            while self.state is not WatchState.IN_SYNC:
                add(await self.next())
        except BaseException:
            await self.close()
            raise

    async def next(self) -> list[Message]:
        """Wait for new messages and return them: none after a comparison that found no difference.

        Raises one of `BUCKET_ERRORS` once the watch has ended.
        """
        await self._is_ready.wait()
        self._is_ready.clear()
        if self.state is WatchState.ENDED:
            raise self._error
        messages: list[Message] = []
        while self._incoming and len(messages) < _MAX_MESSAGES:
            delivery = self._incoming.popleft()
            if delivery.subject.startswith(self._connection.prefix):
                messages.append(self._message(delivery))
            else:
                await self._acknowledge(delivery)
        if self._incoming:
            self._is_ready.set()
            # Let the other tasks of the loop run.
            await asyncio.sleep(0)
        return messages

    async def close(self) -> None:
        """Stop watching."""
        self._comparing.cancel()
        await self._connection.unsubscribe(self._subscription)

    async def _deliver(self, delivery: Delivery) -> None:
        self._incoming.append(delivery)
        self._is_ready.set()

    def _message(self, delivery: Delivery) -> Message:
        # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<number>.<time>.<pending>, or with a domain and an account
        # before the stream, and a token at the end.
        tokens = delivery.reply.split(".")
        sequence, number, time = (int(token) for token in (tokens[5:8] if len(tokens) == 9 else tokens[7:10]))
        if number != self._delivered + 1 or sequence <= self._sequence:
            self._end(Lost("a message was delivered twice, or not at all"))
            raise self._error
        if sequence != self._sequence + 1:
            self._gaps += 1
            self._gap_found.set()
        self._delivered, self._delivered_at = number, monotonic()
        self._sequence = sequence
        self.revision = max(self.revision, sequence)
        key = delivery.subject.removeprefix(self._connection.prefix)
        if key not in self._keys:
            self._keys.add(key)
            self._first_sequences.append(sequence)
        headers = delivery.headers or {}
        return Message(key, None if is_deletion(headers) else delivery.data, headers, sequence, time)

    async def _acknowledge(self, control: Delivery) -> None:
        """Answer flow control: the server sends no more until everything sent so far was read."""
        headers = control.headers or {}
        subject = control.reply or headers.get("Nats-Consumer-Stalled")
        if subject:
            await self._connection.reply(subject)

    async def _compare_repeatedly(self) -> None:
        unequal = 0
        try:
            # What was stored at the start is delivered with gaps.
            await self._reach(self.stored)
            while unequal < COMPARISONS:
                if await self._is_equal():
                    unequal = 0
                    await self._until_due()
                else:
                    unequal += 1
                    await asyncio.sleep(_CHECK_AGAIN_SECONDS)
        except BUCKET_ERRORS as error:
            self._end(error)
        else:
            self._end(Lost("it was purged or rolled back"))

    async def _until_due(self) -> None:
        """Wait for the next comparison, which is due soon after a gap."""
        await asyncio.sleep(_CHECK_AGAIN_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._check_seconds - _CHECK_AGAIN_SECONDS):
                await self._gap_found.wait()

    async def _is_equal(self) -> bool:
        """Compare the deliveries with the bucket. Raises `Lost` if they will never be equal."""
        asked_at, sequence, gaps = monotonic(), self._sequence, self._gaps
        self._gap_found.clear()
        try:
            state = await self._connection.state()
        except Unreachable:
            if self._delivered_at < asked_at or self._connection.ended.done():
                raise
            # Messages were delivered in between, so the answer is delayed by deliveries.
            return await self._is_equal()
        if state.created != self.stored.created:
            raise Lost("it was deleted and created again")
        if state.last_sequence < sequence:
            return False
        await self._reach(state)
        if self.state is WatchState.ENDED or not self._has_keys_of(state):
            return False
        self.state, self._closed_gaps = WatchState.IN_SYNC, gaps
        self.revision = max(self.revision, state.last_sequence)
        self._is_ready.set()
        return True

    async def _reach(self, state: BucketState) -> None:
        """Wait until everything that was stored then is delivered. Raises `Lost` if the deliveries stop."""
        began = monotonic()
        # The last message may have been purged: then no delivery has its sequence.
        last_stored = state.last_sequence if state.keys else 0
        is_checked = False
        while self._sequence < last_stored:
            await asyncio.sleep(_REACH_SECONDS)
            silence = monotonic() - max(self._delivered_at, began)
            if silence >= SILENCE_SECONDS:
                raise Lost("nothing is delivered any longer")
            if silence >= SILENCE_SECONDS / 2 and not is_checked:
                is_checked = True
                last = await self._connection.last(">")
                last_stored = min(last_stored, last.sequence if last else 0)

    def _has_keys_of(self, state: BucketState) -> bool:
        """Return whether all keys that the bucket had then have been delivered."""
        while self._first_sequences and self._first_sequences[0] <= state.last_sequence:
            self._first_sequences.popleft()
        return len(self._keys) - len(self._first_sequences) == state.keys

    def _end(self, error: Exception) -> None:
        """Record why the watch ends, unless it has ended before."""
        if self.state is not WatchState.ENDED:
            self.state, self._error = WatchState.ENDED, error
        self._is_ready.set()
