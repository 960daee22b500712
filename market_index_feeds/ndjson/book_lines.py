"""What a line contains: an order book, the freshness of the books before it, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from attrs import frozen

from market_index import Freshness, InvalidFreshness, MarketIndexError, OrderBook, Pair, wire
from market_index_feeds.line_source import MAX_LINE_BYTES, Line, LineBatch
from market_index_feeds.medium import Names, Rejected


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


Content: TypeAlias = OrderBook | Freshness | RejectedLine
"""What a line contains that is not blank. A freshness is that of a commit line."""


def contents_of(batch: LineBatch) -> Iterator[Content]:
    """Yield what the lines of a batch contain. Blank lines contain nothing; a last line needs its newline."""
    for line in batch.lines:
        if line.text is None:
            yield RejectedLine(line.number, f"it is longer than {MAX_LINE_BYTES} bytes", Names.ANY)
        elif line.text.strip():
            yield _read(line.number, line.text)
    last = batch.unfinished
    if batch.is_end and last is not None and (last.text is None or last.text.strip()):
        yield RejectedLine(last.number, "it was not finished by a newline", names_of(last))


def names_of(line: Line) -> Pair | Names:
    """Return which pair a line names, although it may contain no valid book."""
    return Names.ANY if line.text is None else wire.pair_named_in(line.text) or Names.ANY


def _read(number: int, text: bytes) -> Content:
    try:
        return wire.freshness_from_json(text) if wire.is_freshness(text) else wire.order_book_from_json(text)
    except InvalidFreshness as error:
        return RejectedLine(number, str(error), Names.NONE)
    except MarketIndexError as error:
        return RejectedLine(number, str(error), wire.pair_named_in(text) or Names.ANY)
