"""From a feed into a store: what the feed brings is published there, and what it drops is retracted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic
from typing import Final

from market_index import LiveIndex, MarketIndex, Pair
from market_index_feeds.backoff import next_backoff
from market_index_feeds.feed import Feed
from market_index_feeds.medium import Progress
from market_index_feeds.store import BookTooLarge, Receipt, Store, StoreError

LOG: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.005
"""How often it is looked whether the feed has brought something."""

CHECK_SECONDS: Final = 1.0
"""How often it is seen to that the store is as it was left."""


class Relay:
    """Follows a feed, and makes a store the same.

    At the start, and after whatever interrupts it, the store is compared with the feed as a whole; between, each change
    is published as it comes, the last of a pair where several came meanwhile. While the store cannot be written to, it
    is tried again, for ever.

    The store is to be the relay's alone: what somebody else publishes there is undone. But nothing is retracted that
    the feed may still name: none before the feed had a book, and where it refused a record, or is a stream that goes
    on, none but those that it had and dropped.
    """

    def __init__(self, feed: Feed, open_store: Callable[[], Store]) -> None:
        self.feed = feed
        self.live = LiveIndex()
        self.target = ""
        self._open_store = open_store
        self._store: Store | None = None
        self._relayed = self.live.current
        self._seen: set[Pair] = set()
        self._too_large: set[Pair] = set()
        self._trouble = False
        self._was_whole = False
        self._closing = Event()

    def start(self, progress: Progress | None = None) -> Receipt:
        """Load the feed, open the store, and make it the same; then `run`. Raises `FeedError` and `StoreError`."""
        self.feed.start(self.live, progress)
        self._store = self._open_store()
        self.target = self._store.target
        return self._reconcile(self._store)

    def run(self) -> None:
        """Go on until `close`. Call it once, after `start`."""
        pause = 0.0
        while not self._closing.wait(pause):
            try:
                if self._store is None:
                    self._store = self._open_store()
                    self._reconcile(self._store)
                self._keep_up(self._store)
                pause = 0.0
            except StoreError as error:
                if not self._trouble and not self._closing.is_set():
                    LOG.warning("%s: %s; it is tried again", self.feed.source, error)
                pause = self._interrupted(pause)
            except Exception:  # whatever it is, the store is to be kept the same
                LOG.exception("%s: a defect; all of %s is compared again", self.feed.source, self.target)
                pause = self._interrupted(pause)
        self._let_go()

    def _interrupted(self, pause: float) -> float:
        self._trouble = True
        self._let_go()
        return next_backoff(pause)

    @property
    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._closing.is_set()

    def close(self) -> None:
        """End `run`, without waiting for what the store is doing. Closing twice does no harm."""
        self._closing.set()
        store = self._store
        if store is not None:
            # It may wait for its servers, and so would whoever closes it.
            Thread(target=store.close, name=f"closing {store.target}", daemon=True).start()

    def _keep_up(self, store: Store) -> None:
        """Publish what changes until it is time to look at the store, and look at it."""
        until = monotonic() + CHECK_SECONDS
        while monotonic() < until and not self._closing.wait(POLL_SECONDS):
            current = self.live.current
            if current is not self._relayed:
                self._publish(store, current)
        if self.feed.is_whole and not self._was_whole:
            # Now it is known what it does not name.
            self._reconcile(store)
        elif not self._closing.is_set() and not store.is_as_left():
            LOG.warning("%s was changed by somebody else, and is made like %s again", store.target, self.feed.source)
            self._reconcile(store)

    def _publish(self, store: Store, current: MarketIndex) -> None:
        books, gone = current.changes_since(self._relayed)
        if books:
            self._seen.update(book.pair for book in books)
            self._told_of(lambda: store.publish(*books))
        if gone:
            store.retract(*gone)
        self._relayed = current

    def _reconcile(self, store: Store) -> Receipt:
        """Make the store the same as what the feed has brought."""
        self._was_whole = self.feed.is_whole
        index = self.live.current
        self._seen.update(index)
        if self._seen:
            receipt = self._told_of(lambda: store.replace(index.values(), self._may_be_named))
        else:
            receipt = store.replace((), lambda _: True)
            LOG.warning("%s has no order book yet: nothing of %s is retracted", self.feed.source, store.target)
        if self._trouble:
            self._trouble = False
            LOG.info("%s is written to again", store.target)
        self._relayed = index
        return receipt

    def _may_be_named(self, pair: Pair) -> bool:
        return pair not in self._seen and (self.feed.rejected > 0 or not self._was_whole)

    def _told_of(self, publish: Callable[[], Receipt]) -> Receipt:
        """Return the receipt; a book that is too large is told of, once a pair, and costs nothing else."""
        try:
            receipt = publish()
        except BookTooLarge as error:
            if not self._too_large.issuperset(error.pairs):
                LOG.warning("%s", error)
            self._too_large.update(error.pairs)
            receipt = error.receipt
        return receipt

    def _let_go(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()
