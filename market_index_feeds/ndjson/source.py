"""Opens a file or stream of order books, one per line."""

from __future__ import annotations

from market_index_feeds.line_feed import LineFeedSource
from market_index_feeds.line_source import open_lines
from market_index_feeds.ndjson.commits import Commits


def open_ndjson_source(source: str, *, follow: bool = True) -> LineFeedSource:
    """Open a file or a pipe by its path, or standard input by `-`. Raises `FeedError`."""
    return LineFeedSource(open_lines(source, follow=follow), Commits)
