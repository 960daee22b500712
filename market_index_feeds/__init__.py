"""What fills a `LiveIndex`: where order books come from and live, and how a change there goes live.

>>> from market_index import LiveIndex
>>> from market_index_feeds import open_feed
>>> live = LiveIndex()
>>> with open_feed("samples/order-books.ndjson") as feed:
...     feed.start(live)
>>> len(live.current) == feed.books > 0
True
"""

from market_index_feeds.feed import Feed, FeedError, Progress
from market_index_feeds.relay import Relay
from market_index_feeds.sources import open_feed, open_store
from market_index_feeds.store import BookTooLarge, Receipt, Store, StoreBusy, StoreError, Unacknowledged

__all__ = [
    "BookTooLarge",
    "Feed",
    "FeedError",
    "Progress",
    "Receipt",
    "Relay",
    "Store",
    "StoreBusy",
    "StoreError",
    "Unacknowledged",
    "open_feed",
    "open_store",
]
