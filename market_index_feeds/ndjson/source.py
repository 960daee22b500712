"""Opens a file or stream of order books, one per line, and recordings to replay."""

from __future__ import annotations

from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.line_feed import LineFeedSource
from market_index_feeds.line_source import open_lines
from market_index_feeds.ndjson.commits import Commits
from market_index_feeds.ndjson.recording import open_recording
from market_index_feeds.ndjson.replay_source import ReplaySource
from market_index_feeds.opened import shown_name


def open_ndjson_source(source: str, *, follow: bool = True) -> LineFeedSource:
    """Open a file or a pipe by its path, or standard input by `-`. Raises `FeedError`."""
    return LineFeedSource(open_lines(source, follow=follow), Commits)


def open_replay_source(path: str, speed: float, *, loop: bool) -> ReplaySource:
    """Open a recording by its path, or that of this package by `sample:`, to replay it. Raises `FeedError`."""
    try:
        open_recording(path).close()
    except (OSError, ValueError) as error:
        raise FeedError(f"{shown_name(path)} cannot be replayed: {reason_of(error)}") from None
    return ReplaySource(path, speed=speed, loop=loop)
