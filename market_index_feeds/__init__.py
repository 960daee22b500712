"""What fills a `LiveIndex`: where order books come from and live, and how a change there goes live.

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
