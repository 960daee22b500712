"""Sources and stores of order books.

A `Feed` reads the books of a file, a stream, a store or another service into a `LiveIndex`, and follows their changes.
A `Store` saves the books that are published into it. A `Relay` copies a feed into a store.

>>> from market_index import LiveIndex
>>> from market_index_feeds import open_feed
>>> live = LiveIndex()
>>> with open_feed("samples/order-books.ndjson") as feed:
...     feed.start(live)
>>> len(live.current) == feed.books > 0
True
"""

from market_index_feeds.book_stream import BookBatch, BookStream
from market_index_feeds.errors import FeedError
from market_index_feeds.feed import Feed
from market_index_feeds.line_content import RejectedLine
from market_index_feeds.medium import Progress
from market_index_feeds.relay import Relay
from market_index_feeds.sources import is_sqlite, open_book_stream, open_feed, open_store
from market_index_feeds.store import BookTooLarge, Receipt, Store, StoreBusy, StoreError, Unacknowledged

__all__ = [
    "BookBatch",
    "BookStream",
    "BookTooLarge",
    "Feed",
    "FeedError",
    "Progress",
    "Receipt",
    "RejectedLine",
    "Relay",
    "Store",
    "StoreBusy",
    "StoreError",
    "Unacknowledged",
    "is_sqlite",
    "open_book_stream",
    "open_feed",
    "open_store",
]
