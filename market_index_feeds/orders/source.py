"""Opens a file or stream of events of orders."""

from __future__ import annotations

from functools import partial

from market_index_feeds.line_feed import LineFeedSource
from market_index_feeds.line_source import open_lines
from market_index_feeds.orders.blocks import Blocks


def open_orders_source(source: str, history: int, *, follow: bool = True) -> LineFeedSource:
    """Open a file or a pipe by its path, or standard input by `-`. Raises `FeedError`."""
    return LineFeedSource(open_lines(source, follow=follow), partial(Blocks, history))
