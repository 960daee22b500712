"""Decodes lines: each contains an order book, retracts a pair, commits the lines before it, or is rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from market_index import InvalidFreshness, MarketIndexError, OrderBook, Pair, wire
from market_index.wire import (
    CommitLine,
    commit_from_json,
    is_commit,
    is_retraction,
    retraction_from_json,
)
from market_index_feeds.line_content import RejectedLine, lines_of
from market_index_feeds.line_source import LineBatch
from market_index_feeds.medium import Unnamed

Change: TypeAlias = OrderBook | Pair | RejectedLine
"""The content of a line that a commit line makes visible. A `Pair` is retracted."""

Content: TypeAlias = Change | CommitLine
"""The content of a line that is not blank."""


def contents_of(batch: LineBatch) -> Iterator[Content]:
    """Yield the content of each line of a batch, except blank lines. A last line without a newline is rejected."""
    for line, fault in lines_of(batch):
        text = line.text or b""
        yield _read(line.number, text) if fault is None else RejectedLine(line.number, fault, _invalid(text))


def _read(number: int, text: bytes) -> Content:
    try:
        if is_commit(text):
            return commit_from_json(text)
        return retraction_from_json(text) if is_retraction(text) else wire.order_book_from_json(text)
    except InvalidFreshness as error:
        return RejectedLine(number, str(error))
    except MarketIndexError as error:
        reason = str(error)
    # The decoded value is released with the error, so that it is not in memory twice.
    return RejectedLine(number, reason, _invalid(text))


def _invalid(text: bytes) -> Pair | Unnamed:
    """Return the pair that a line names although it contains no valid book."""
    return wire.pair_named_in(text) or Unnamed.UNREADABLE
