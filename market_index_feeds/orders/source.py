"""Opens a file or stream of events of orders, for a feed or for reading once."""

from __future__ import annotations

from functools import partial

from market_index_feeds.book_stream import BookStream
from market_index_feeds.line_feed import LineFeedSource
from market_index_feeds.line_source import open_lines, open_stream
from market_index_feeds.orders.blocks import Blocks


def open_orders_source(source: str, history: int) -> LineFeedSource:
    """Open a file or a pipe by its path, or standard input by `-`, for following. Raises `FeedError`."""
    return LineFeedSource(open_lines(source), partial(Blocks, history))


def open_orders_stream(source: str, history: int) -> BookStream:
    """Open a file or a pipe by its path, or standard input by `-`, for reading once. Raises `FeedError`."""
    return BookStream(open_stream(source), Blocks(history))
