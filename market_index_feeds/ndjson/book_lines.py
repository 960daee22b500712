"""Decodes lines: each contains an order book, or the freshness of the books before it, or is rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from market_index import Freshness, InvalidFreshness, MarketIndexError, OrderBook, Pair, wire
from market_index_feeds.line_content import RejectedLine, lines_of
from market_index_feeds.line_source import Line, LineBatch
from market_index_feeds.medium import Names

Content: TypeAlias = OrderBook | Freshness | RejectedLine
"""The content of a line that is not blank. A `Freshness` is that of a commit line."""


def contents_of(batch: LineBatch) -> Iterator[Content]:
    """Yield the content of each line of a batch, except blank lines. A last line without a newline is rejected."""
    for line, fault in lines_of(batch):
        rejected = None if fault is None else RejectedLine(line.number, fault, names_of(line))
        yield rejected or _read(line.number, line.text or b"")


def names_of(line: Line) -> Pair | Names:
    """Return which pair a line names, even if it contains no valid book."""
    return Names.ANY if line.text is None else wire.pair_named_in(line.text) or Names.ANY


def _read(number: int, text: bytes) -> Content:
    try:
        return wire.freshness_from_json(text) if wire.is_freshness(text) else wire.order_book_from_json(text)
    except InvalidFreshness as error:
        return RejectedLine(number, str(error), Names.NONE)
    except MarketIndexError as error:
        reason = str(error)
    # The decoded value is released with the error, so that it is not in memory twice.
    return RejectedLine(number, reason, wire.pair_named_in(text) or Names.ANY)
