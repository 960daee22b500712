"""What fills a `LiveIndex`: where order books come from, and how a change there goes live.

>>> from market_index import LiveIndex
>>> from market_index_feeds import open_feed
>>> live = LiveIndex()
>>> with open_feed("samples/order-books.ndjson") as feed:
...     feed.start(live)
>>> len(live.current) == feed.books > 0
True
"""

from __future__ import annotations

from os import PathLike, fspath

from market_index.errors import shown
from market_index_feeds.feed import Feed, FeedError, Progress
from market_index_feeds.ndjson import open_ndjson

__all__ = ["Feed", "FeedError", "Progress", "open_feed"]


def open_feed(source: str | PathLike[str]) -> Feed:
    """Open the feed that `source` names: the path of a file of order books, one a line, or `-` for standard input.

    Nothing is read before the feed is started.

    >>> open_feed("nowhere/books.ndjson")
    Traceback (most recent call last):
    market_index_feeds.feed.FeedError: nowhere/books.ndjson cannot be opened: No such file or directory

    Raises `FeedError` when there is nothing to be read there, or the kind of source is not known.
    """
    name = fspath(source)
    scheme, mark, _ = name.partition("://")
    if mark:
        raise FeedError(f"{shown(name)} cannot be opened: {shown(scheme)} is not a kind of feed that is known")
    return open_ndjson(name)
