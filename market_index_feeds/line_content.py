"""What a medium of lines implements: `LineContent`, which says what the lines of a file or stream make visible."""

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
    """A line that is rejected: its number, why, and which pair it names."""

    number: int
    reason: str
    names: Pair | Names

    @property
    def pair(self) -> Pair | None:
        """The pair that it names; None where it may name any."""
        return self.names if isinstance(self.names, Pair) else None

    def as_record(self) -> Rejected:
        """Return it as the follower takes it."""
        return Rejected(f"line {self.number}", self.reason, self.names)


Reported: TypeAlias = RejectedLine | Freshness
"""What reading a line reports: that it is rejected, or the freshness of what it makes visible."""


class LineContent(ABC):
    """What the lines of one file or stream contain, and which of it is visible."""

    commit: ClassVar[str]
    """What the lines are called that make the lines before them visible."""

    pending_record: ClassVar[str]
    """What the records are called that such a line makes visible."""

    knows_all_pairs: ClassVar[bool] = False
    """Whether a commit says everything: then no rejected line, and none that is yet to come, names another pair."""

    @property
    def problem(self) -> str | None:
        """Why the lines that were read do not say what is visible now; None if they do."""
        return None

    @abstractmethod
    def read(self, batch: LineBatch) -> Iterator[Reported]:
        """Read the lines of the next batch, and report each that is rejected, or makes the lines before it visible."""

    @abstractmethod
    def changes(self) -> Delta:
        """Return what became visible since `deliver` was last called."""

    @abstractmethod
    def deliver(self) -> None:
        """Note that `changes` were delivered."""

    @property
    @abstractmethod
    def pending(self) -> int:
        """The number of records that wait to become visible."""

    @abstractmethod
    def unfinished(self, batch: LineBatch) -> Pair | Names:
        """Return what the lines may name that follow a batch, which contains the first of them as far as it is read."""


def lines_of(batch: LineBatch) -> Iterator[tuple[Line, str | None]]:
    """Yield the lines of a batch that are not blank, each with the reason why it cannot be read, if there is one."""
    for line in batch.lines:
        if line.text is None:
            yield line, f"it is longer than {MAX_LINE_BYTES} bytes"
        elif line.text.strip():
            yield line, None
    last = batch.unfinished
    if batch.is_end and last is not None and (last.text is None or last.text.strip()):
        yield last, "it was not finished by a newline"
