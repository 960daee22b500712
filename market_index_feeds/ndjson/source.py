"""Opens a file or stream of order books, one per line, for a feed or for reading once."""

from __future__ import annotations

from market_index_feeds.book_stream import BookStream
from market_index_feeds.line_feed import LineFeedSource
from market_index_feeds.line_source import open_lines, open_stream
from market_index_feeds.ndjson.commits import Commits


def open_ndjson_source(source: str) -> LineFeedSource:
    """Open a file or a pipe by its path, or standard input by `-`, for following. Raises `FeedError`."""
    return LineFeedSource(open_lines(source), Commits)


def open_ndjson_stream(source: str) -> BookStream:
    """Open a file or a pipe by its path, or standard input by `-`, for reading once. Raises `FeedError`."""
    return BookStream(open_stream(source), Commits())
