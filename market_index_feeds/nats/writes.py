"""Writes to a bucket, many of them in flight at the same time.

Theory of operation
===================

A write names its expected sequence: that of the last message of its key, as far as the publisher knows. The server
stores the write only if that is still the last one (compare-and-set). So at most one of several writes with the same
expected sequence is stored, and a write that arrives late never overwrites a newer one.

    QUEUED ──sent──▶ IN_FLIGHT ──the server stores it───────────────────▶ ACKNOWLEDGED
                         ├──another message is the last one of the key──▶ CONTESTED
                         ├──the connection ends, or no answer in time───▶ UNACKNOWLEDGED
                         ├──it exceeds the limit of a book or a server──▶ TOO_LARGE
                         ├──no stream takes it──────────────────────────▶ NO_STREAM
                         └──the server rejects it───────────────────────▶ REJECTED

- ACKNOWLEDGED, TOO_LARGE and REJECTED are final.
- CONTESTED: the publisher reads the last message of the key. If that has the content of the write, which an earlier
  attempt may have stored, the write is ACKNOWLEDGED. Otherwise it is QUEUED again, with the sequence of that message.
  If the key has no unacknowledged write, the error of the server suffices: it contains the sequence. A record that
  depends on the last message, as a freshness with the stored as_of, is `derived` from it again.
- UNACKNOWLEDGED: it may be stored now or later. The write is QUEUED again, with the same expected sequence.
- NO_STREAM: the leader may be changing. The write is QUEUED again, unless the bucket does not exist.

`Publisher.unacknowledged` has the keys with an unacknowledged write beyond the call, until a later write of the key is
acknowledged: from then on the unacknowledged one expects too old a sequence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from enum import Enum
from time import monotonic
from typing import Final

from attrs import define

from market_index import wire
from market_index_feeds.nats.bucket import OPERATION_HEADER, Message
from market_index_feeds.nats.connection import Connection, Delivery
from market_index_feeds.nats.errors import NO_STREAM, TOO_LARGE, WRONG_SEQUENCE, Rejected, shown_text
from market_index_feeds.nats.records import Record

MAX_IN_FLIGHT: Final = 256
MAX_BYTES_IN_FLIGHT: Final = 4 * 1024 * 1024

_EXPECTED_HEADER: Final = "Nats-Expected-Last-Subject-Sequence"
_LAST_SEQUENCE: Final = re.compile(r"wrong last sequence: (\d+)").fullmatch


class WriteState(Enum):
    """The states of a write; see the module docstring."""

    QUEUED = "to be sent"
    IN_FLIGHT = "sent, without an answer yet"
    ACKNOWLEDGED = "stored"
    CONTESTED = "not stored: another message is the last one of the key"
    UNACKNOWLEDGED = "sent without an answer: it may be stored, or be stored later"
    TOO_LARGE = "not stored: it exceeds the limit of books, of the server or of the bucket"
    NO_STREAM = "not stored: no stream takes it"
    REJECTED = "not stored: the server rejects it"


FINAL: Final = {WriteState.ACKNOWLEDGED, WriteState.TOO_LARGE, WriteState.REJECTED}


@define(eq=False)
class Write:
    """A record to store under a key; None deletes the key.

    `sequence` is that of the stored message once it is acknowledged, and the one that the server reports if it is
    contested, None if it reports none. `limit` is the limit that it exceeds, `rejection` why the server rejects it.
    `derived` returns the record after another last message of the key, None if the record does not depend on it.
    """

    key: str
    record: Record | None
    state: WriteState = WriteState.QUEUED
    expected: int = 0
    sequence: int | None = None
    limit: str = ""
    rejection: Rejected | None = None
    derived: Callable[[Message | None], Record] | None = None

    @property
    def length(self) -> int:
        """The size of the value in bytes."""
        return 0 if self.record is None else len(self.record.value)

    def acknowledge(self, sequence: int) -> None:
        """Record that the write is stored, with that sequence."""
        self.state, self.sequence = WriteState.ACKNOWLEDGED, sequence

    def reject(self, rejection: Rejected) -> None:
        """Record why the server does not store the write."""
        if rejection.code in WRONG_SEQUENCE:
            last = _LAST_SEQUENCE(str(rejection))
            self.state, self.sequence = WriteState.CONTESTED, int(last[1]) if last else None
        elif rejection.code in TOO_LARGE and self.record is not None:
            self.state, self.rejection = WriteState.TOO_LARGE, rejection
        elif rejection.code == NO_STREAM:
            self.state = WriteState.NO_STREAM
        else:
            self.state, self.rejection = WriteState.REJECTED, rejection


class InFlight:
    """The writes in flight over one connection.

    `acknowledged_at` is the time of the last acknowledgement, by the monotonic clock, None before the first.
    """

    def __init__(self, connection: Connection, seconds: float) -> None:
        self.acknowledged_at: float | None = None
        self._connection = connection
        self._seconds = seconds
        self.writes: set[Write] = set()
        self._length = 0

    async def send(self, writes: Iterable[Write]) -> None:
        """Send queued writes, and wait until each has an answer.

        Raises `Unreachable` if no answer arrives for `seconds`, or the connection ends; and `PermissionError`. In every
        case no write is in flight afterwards: those without an answer are unacknowledged.
        """
        try:
            for write in writes:
                while len(self.writes) >= MAX_IN_FLIGHT or self._length >= MAX_BYTES_IN_FLIGHT:
                    await self._connection.replied(self._seconds)
                await self._send(write)
            while self.writes:
                await self._connection.replied(self._seconds)
        finally:
            self._connection.forget_replies()
            for write in self.writes:
                write.state = WriteState.UNACKNOWLEDGED

    async def _send(self, write: Write) -> None:
        if write.length > self._connection.max_value_bytes:
            # Another server may accept less than the one before.
            write.state, write.limit = WriteState.TOO_LARGE, f"{self._connection.max_value_bytes} bytes, deflated"
            if write.length > wire.MAX_ORDER_BOOK_BYTES:
                write.limit = f"{wire.MAX_ORDER_BOOK_BYTES} bytes of JSON"
            return
        headers = {_EXPECTED_HEADER: str(write.expected)}
        headers |= {OPERATION_HEADER: "DEL"} if write.record is None else write.record.headers
        value = b"" if write.record is None else write.record.value
        write.state = WriteState.IN_FLIGHT
        self.writes.add(write)
        self._length += write.length
        await self._connection.publish(write.key, value, headers, lambda reply: self._on_reply(write, reply))

    def _on_reply(self, write: Write, reply: Delivery) -> None:
        self.writes.remove(write)
        self._length -= write.length
        if reply.headers and reply.headers.get("Status") == "503":
            write.reject(Rejected(NO_STREAM, "there is no such bucket"))
            return
        answer = json.loads(reply.data)
        if "error" in answer:
            error = answer["error"]
            write.reject(Rejected(error.get("err_code", 0), shown_text(str(error.get("description", "")))))
        else:
            write.acknowledge(answer["seq"])
            self.acknowledged_at = monotonic()
