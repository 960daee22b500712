"""The writes of a change: each publishes a record under a key, until its outcome is final."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from attrs import define

from market_index_feeds.nats.bucket import Message
from market_index_feeds.nats.records import Record, has_content_of


class Outcome(Enum):
    """What is known after a publish of a key; see `publisher.py`."""

    STORED = "the servers have stored it"
    CONTESTED = "not stored: another message is the last one of the key"
    UNKNOWN = "no reply: it may be stored, now or later"
    REJECTED = "not stored: it is too large, or a server rejects it"


_FINAL: Final = {Outcome.STORED, Outcome.REJECTED}


@define(eq=False)
class Write:
    """A record to store under a key; None deletes the key.

    `outcome` and `expected`, the expected sequence, are None until the write is sent. `sequence` is that of the stored
    message. `reason` is why the write is rejected, and `limit` the limit that it exceeds, if that is the reason.
    `derived` returns the record after another last message of the key, None if the record does not depend on it.
    """

    key: str
    record: Record | None
    derived: Callable[[Message | None], Record] | None = None
    outcome: Outcome | None = None
    expected: int | None = None
    sequence: int = 0
    reason: str = ""
    limit: str = ""

    @property
    def length(self) -> int:
        """The size of the value in bytes."""
        return 0 if self.record is None else len(self.record.value)

    def may_be(self, last: Message) -> bool:
        """Whether the last message of the key may be this write: it is later, and has the same content."""
        return self.expected is not None and last.sequence > self.expected and has_content_of(self.record, last)

    def store(self, sequence: int) -> None:
        """Record that the write is stored, with that sequence."""
        self.outcome, self.sequence = Outcome.STORED, sequence

    def reject(self, reason: str, limit: str = "") -> None:
        """Record why the write is not stored."""
        self.outcome, self.reason, self.limit = Outcome.REJECTED, reason, limit


class WriteBatch:
    """The writes of one change."""

    def __init__(self, writes: list[Write]) -> None:
        self.writes = writes

    @classmethod
    def of_records(cls, records: Mapping[str, Record | None]) -> WriteBatch:
        """Return the writes of records by key; None deletes the key."""
        return cls([Write(key, record) for key, record in records.items()])

    @property
    def unfinished(self) -> list[Write]:
        """The writes that are neither stored nor rejected."""
        return [write for write in self.writes if write.outcome not in _FINAL]

    @property
    def rejected(self) -> list[Write]:
        """The rejected writes."""
        return [write for write in self.writes if write.outcome is Outcome.REJECTED]

    @property
    def revision(self) -> int:
        """The sequence of the last stored write; 0 if there is none."""
        return max((write.sequence for write in self.writes), default=0)

    @property
    def written(self) -> set[str]:
        """The keys of the stored writes."""
        return {write.key for write in self.writes if write.outcome is Outcome.STORED}

    @property
    def not_written(self) -> set[str]:
        """The keys of the other writes."""
        return {write.key for write in self.writes} - self.written
