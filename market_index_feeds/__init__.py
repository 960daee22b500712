"""Sources and stores of order books.

A `Feed` reads the books of a file, a stream, a store or another service into a `LiveIndex`, and follows their changes.
A `Store` saves the books that are published into it; a `Recorder` is one that keeps all changes. `mirror` makes a store
equal to each version of a feed, and `replay` reads a recording.

>>> from market_index import LiveIndex
>>> from market_index_feeds import open_feed
>>> live = LiveIndex()
>>> with open_feed("sample:") as feed:
...     feed.start(live)
>>> len(live.current) > 0
True
"""

from market_index_feeds.book_lines import BookLines, Change
from market_index_feeds.errors import BookTooLarge, Conflict, FeedError, StoreBusy, StoreError, UnknownOutcome
from market_index_feeds.feed import Feed
from market_index_feeds.health import FeedHealth, HealthState
from market_index_feeds.mirror import mirror
from market_index_feeds.recording import Recorder, replay, sample_tokens
from market_index_feeds.source import NoVersion, Position, Progress, Source, Version
from market_index_feeds.sources import Contents, Kind, Opening, open_feed, open_store, register_kind
from market_index_feeds.store import CheckedChange, Receipt, Store
from market_index_feeds.venue_orders import VenueOrder

__all__ = [
    "BookLines",
    "BookTooLarge",
    "Change",
    "CheckedChange",
    "Conflict",
    "Contents",
    "Feed",
    "FeedError",
    "FeedHealth",
    "HealthState",
    "Kind",
    "NoVersion",
    "Opening",
    "Position",
    "Progress",
    "Receipt",
    "Recorder",
    "Source",
    "Store",
    "StoreBusy",
    "StoreError",
    "UnknownOutcome",
    "VenueOrder",
    "Version",
    "mirror",
    "open_feed",
    "open_store",
    "register_kind",
    "replay",
    "sample_tokens",
]
