"""The interface of a medium of lines: `LineContent` reads lines, and decides which of their changes are visible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator
from typing import ClassVar, TypeAlias

from attrs import frozen

from market_index import Freshness, Pair
from market_index_feeds.line_kind import LineKind
from market_index_feeds.line_source import MAX_LINE_BYTES, Line, LineBatch
from market_index_feeds.medium import Rejected, Unnamed, Update


@frozen
class RejectedLine:
    """A rejected line: its number, the reason, what is `invalid` until it is overwritten, and its identity, if any.

    `invalid` is None for a line that cannot contain an order book: it is only counted.
    """

    number: int
    reason: str
    invalid: Pair | Unnamed | None = None
    record: str | None = None

    def as_record(self) -> Rejected:
        """Return the rejection in the form of an update."""
        return Rejected(f"line {self.number}", self.reason, self.record)


Reported: TypeAlias = RejectedLine | Freshness
"""The result of reading a line: that it is rejected, or the freshness of the lines that it makes visible."""


class LineContent(ABC):
    """The content of the lines of one file or stream, and which part of it is visible."""

    kind: ClassVar[LineKind]
    """The kind of its lines."""

    commit: ClassVar[str]
    """The noun for a line that makes the lines before it visible."""

    pending_record: ClassVar[str]
    """The noun for a record that waits for such a line."""

    @property
    def problem(self) -> str | None:
        """Why the current content is not known from the lines read so far; None if it is."""
        return None

    @abstractmethod
    def read(self, batch: LineBatch) -> Iterator[Reported]:
        """Read the lines of the next batch, and report each line that is rejected or makes others visible."""

    @abstractmethod
    def changes(self) -> Update:
        """Return what became visible since `deliver` was last called."""

    @abstractmethod
    def deliver(self) -> None:
        """Record that `changes` were delivered."""

    @property
    @abstractmethod
    def pending(self) -> int:
        """The number of records that wait to become visible."""

    @property
    def pending_invalid(self) -> Collection[Hashable]:
        """What is invalid of the records that wait to become visible."""
        return ()

    @property
    @abstractmethod
    def reads_on(self) -> bool:
        """Whether the next line, of which only a part was read, may change what is visible now."""


def lines_of(batch: LineBatch) -> Iterator[tuple[Line, str | None]]:
    """Yield the non-blank lines of a batch, each with the reason why it is rejected, or None."""
    for line in batch.lines:
        if line.text is None:
            yield line, f"must have at most {MAX_LINE_BYTES} bytes"
        elif line.text.strip():
            yield line, None
    last = batch.unfinished
    if batch.is_end and last is not None and (last.text is None or last.text.strip()):
        yield last, "must end with a newline"
