"""The interface of a medium of lines: `LineContent` reads lines, and decides which of their changes are visible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, TypeAlias

from attrs import frozen

from market_index import Freshness, Pair
from market_index_feeds.line_source import MAX_LINE_BYTES, Line, LineBatch
from market_index_feeds.medium import Delta, Names, Rejected


@frozen
class RejectedLine:
    """A rejected line: its number, the reason, which pair it names, and its record if that can be overwritten."""

    number: int
    reason: str
    names: Pair | Names
    record: str | None = None

    @property
    def pair(self) -> Pair | None:
        """The pair that the line names; None if it names none, or may name any."""
        return self.names if isinstance(self.names, Pair) else None

    def as_record(self) -> Rejected:
        """Return the rejection in the form of an update."""
        return Rejected(f"line {self.number}", self.reason, self.names, self.record)


Reported: TypeAlias = RejectedLine | Freshness
"""The result of reading a line: that it is rejected, or the freshness of the lines that it makes visible."""


class LineContent(ABC):
    """The content of the lines of one file or stream, and which part of it is visible."""

    commit: ClassVar[str]
    """The noun for a line that makes the lines before it visible."""

    pending_record: ClassVar[str]
    """The noun for a record that waits for such a line."""

    knows_all_pairs: ClassVar[bool] = False
    """Whether a commit names all pairs, so that neither a rejected line nor a later one names another pair."""

    @property
    def problem(self) -> str | None:
        """Why the current content is not known from the lines read so far; None if it is."""
        return None

    @abstractmethod
    def read(self, batch: LineBatch) -> Iterator[Reported]:
        """Read the lines of the next batch, and report each line that is rejected or makes others visible."""

    @abstractmethod
    def changes(self) -> Delta:
        """Return what became visible since `deliver` was last called."""

    @abstractmethod
    def deliver(self) -> None:
        """Record that `changes` were delivered."""

    @property
    @abstractmethod
    def pending(self) -> int:
        """The number of records that wait to become visible."""

    @abstractmethod
    def unfinished(self, batch: LineBatch) -> Pair | Names:
        """Return which pair the unread lines after a batch may name; `batch.unfinished` starts the first of them."""


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
