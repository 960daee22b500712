"""Sources and stores of order books.

A `Feed` reads the books of a file, a stream, a store or another service into a `LiveIndex`, and follows their changes.
A `Store` saves the books that are published into it. A `Relay` copies a feed into a store. A `Recorder` writes the
changes of a feed into a file, and `replay` reads them.

>>> from market_index import LiveIndex
>>> from market_index_feeds import open_feed
>>> live = LiveIndex()
>>> with open_feed("docs/samples/order-books.ndjson") as feed:
...     feed.start(live)
>>> len(live.current) == feed.books > 0
True
"""

from market_index_feeds.errors import FeedError
from market_index_feeds.feed import Feed
from market_index_feeds.medium import Progress, Update
from market_index_feeds.relay import Relay
from market_index_feeds.sources import Recorder, is_sqlite, open_feed, open_store, replay
from market_index_feeds.store import BooksRejected, Receipt, Store, StoreBusy, StoreError, Unacknowledged

__all__ = [
    "BooksRejected",
    "Feed",
    "FeedError",
    "Progress",
    "Receipt",
    "Recorder",
    "Relay",
    "Store",
    "StoreBusy",
    "StoreError",
    "Unacknowledged",
    "Update",
    "is_sqlite",
    "open_feed",
    "open_store",
    "replay",
]
