"""From a feed into a store: what the feed brings is published there, and what it drops is retracted.

Theory of operation
===================

    COMPARING ──the store is the same──▶ PUBLISHING        any ──close──▶ CLOSED
        ▲  ▲                                 │
        │  └─the store or the feed changed───┤
        └──────FAILING ◀──it raised──────────┘

- COMPARING: all of the store is made the same as the feed.
- PUBLISHING: each change of the feed is published; if a pair changed several times meanwhile, its last book. Once a
  second the store is checked: if another program has changed it, it is compared again.
  Books that the servers of the store reject are published again then; those that are too large are not.
- FAILING: the store could not be opened or written to. It is opened again after a backoff, and compared.

Nothing is retracted that the feed may still name: no pair before the feed had a book; no pair that a rejected record
names or may name, as long as it is rejected; and of a stream before its end, only pairs that it had and dropped.
While the store contains such pairs, which the feed has not brought, it is not known what its books reflect: only the
publish time of the feed is passed on. Otherwise its freshness is, unchanged, also if nothing else has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum
from threading import Thread
from time import monotonic, sleep
from typing import Final

from market_index import Freshness, LiveIndex, OrderBook, Pair
from market_index_feeds.backoff import next_backoff
from market_index_feeds.feed import Feed
from market_index_feeds.medium import Names, Progress
from market_index_feeds.store import BookRejected, BookTooLarge, Receipt, Store, StoreError

LOG: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.005
"""Interval between two checks whether the feed has brought something."""

CHECK_SECONDS: Final = 1.0
"""Interval between two checks whether another program has changed the store."""


class RelayState(Enum):
    """The states of a relay; see the module docstring."""

    COMPARING = "makes all of the store the same as the feed"
    PUBLISHING = "publishes each change"
    FAILING = "cannot write to the store, and retries"
    CLOSED = "closed"


class Relay:
    """Follows a feed, and makes a store the same.

    The store is to be the relay's alone: what another program publishes there is undone. While the store cannot be
    written to, the relay retries, for ever.
    """

    def __init__(self, feed: Feed, open_store: Callable[[], Store]) -> None:
        self.feed: Feed = feed
        self.live: LiveIndex = LiveIndex()
        self.target: str = ""
        self._open_store = open_store
        self._store: Store | None = None
        self._state = RelayState.COMPARING
        # A flag that is polled: a signal handler may set it. Setting an Event would wait for ever if the handler
        # interrupted a wait for it that holds its lock.
        self._is_closing = False
        # What the store contains, as far as the relay wrote it.
        self._relayed = self.live.current
        self._seen: set[Pair] = set()
        # The pairs that the store did not take at the last attempt, and those of them to try again.
        self._not_taken: set[Pair] = set()
        self._rejected: set[Pair] = set()
        # What rejected records named at the last comparison, and the pairs that it kept for that.
        self._unresolved = self.feed.unresolved
        self._kept: set[Pair] = set()
        # The pairs of the store that the feed has not brought.
        self._unread: set[Pair] = set()
        # Whether the feed was whole when the store was last compared.
        self._was_whole = False

    def start(self, progress: Progress | None = None) -> Receipt:
        """Load the feed, open the store, and make it the same; then call `run`. Raises `FeedError` and `StoreError`."""
        self.feed.start(self.live, progress)
        self._store = self._open_store()
        self.target = self._store.target
        return self._compare(self._store)

    def run(self) -> None:
        """Keep the store the same until `close`. Call it once, after `start`."""
        backoff = 0.0
        while self._sleeps(backoff):
            try:
                self._keep_same()
                backoff = 0.0
            except StoreError as error:
                if self._state is not RelayState.FAILING and not self._is_closing:
                    LOG.warning("%s: %s; retrying", self.feed.source, error)
                backoff = self._fail(backoff)
            except Exception:
                LOG.exception("%s: unexpected error; comparing all of %s again", self.feed.source, self.target)
                backoff = self._fail(backoff)
        self._state = RelayState.CLOSED
        self._close_store()

    @property
    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._is_closing

    def close(self) -> None:
        """End `run`, without waiting for what the store is doing. Closing twice does no harm.

        Any thread may call it, and a signal handler.
        """
        self._is_closing = True
        store = self._store
        if store is not None:
            # In a thread: it may wait for its servers.
            Thread(target=store.close, name=f"closing {store.target}", daemon=True).start()

    def _sleeps(self, seconds: float) -> bool:
        """Sleep, or less if it is closed meanwhile. Return whether it is still open."""
        until = monotonic() + seconds
        while not self._is_closing and (left := until - monotonic()) > 0:
            sleep(min(left, POLL_SECONDS))
        return not self._is_closing

    def _keep_same(self) -> None:
        """Do what the state demands, until the next check."""
        if self._store is None:
            self._store = self._open_store()
        if self._state is not RelayState.PUBLISHING:
            self._compare(self._store)
        elif self._rejected:
            self._publish_again(self._store)
        self._publish_changes(self._store)
        if self.feed.is_whole and not self._was_whole:
            # Now it is known which pairs it does not name.
            self._state = RelayState.COMPARING
        elif not all(_is_unresolved(pair, self.feed.unresolved) for pair in self._kept):
            # The record that may have named it is valid now, or gone.
            self._state = RelayState.COMPARING
        elif not self._is_closing and not self._store.is_as_left():
            LOG.warning("%s: another program changed it; making it the same as %s", self.target, self.feed.source)
            self._state = RelayState.COMPARING

    def _fail(self, backoff: float) -> float:
        """Close the store, and return how long to wait before it is opened again."""
        self._state = RelayState.FAILING
        self._close_store()
        return next_backoff(backoff)

    def _publish_changes(self, store: Store) -> None:
        """Publish what the feed brings until it is time for the next check."""
        until = monotonic() + CHECK_SECONDS
        while monotonic() < until and self._sleeps(POLL_SECONDS):
            current = self.live.current
            if current is not self._relayed:
                before, self._relayed = self._relayed, current
                self._publish(store, *current.changes_since(before))

    def _publish_again(self, store: Store) -> None:
        """Publish what the servers rejected."""
        books = [book for pair in self._rejected if (book := self._relayed.get(pair)) is not None]
        self._publish(store, books, [pair for pair in self._rejected if pair not in self._relayed])

    def _publish(self, store: Store, books: Collection[OrderBook] = (), gone: Collection[Pair] = ()) -> None:
        """Publish some of what is relayed."""
        pairs = {book.pair for book in books}
        self._seen |= pairs
        self._unread -= pairs
        freshness = self._freshness()
        self._write(lambda: store.update(books, gone, freshness=freshness), pairs.union(gone))

    def _freshness(self) -> Freshness:
        """Return the freshness of the store once it contains what is relayed."""
        freshness = self._relayed.freshness
        return freshness.without_as_of() if self._unread else freshness

    def _compare(self, store: Store) -> Receipt:
        """Make all of the store the same as the feed."""
        self._was_whole = self.feed.is_whole
        self._kept.clear()
        self._unread.clear()
        # Before the index: the book of a pair that was resolved is in it.
        self._unresolved = self.feed.unresolved
        index = self._relayed = self.live.current
        self._seen.update(index)
        # Which pairs it keeps is known too late to write the as_of with them.
        may_keep = not (self._was_whole and self._seen and self._unresolved <= {Names.NONE})
        freshness = index.freshness.without_as_of() if may_keep else index.freshness
        receipt = self._write(
            lambda: store.replace(index.values(), self._is_kept, freshness=freshness), set(self._not_taken)
        )
        if freshness != self._freshness():
            self._publish(store)
        if not self._seen:
            LOG.warning("%s: no order book yet; nothing of %s is retracted", self.feed.source, store.target)
        if self._state is RelayState.FAILING:
            LOG.info("%s: written to again (revision %d)", store.target, receipt.revision)
        self._state = RelayState.PUBLISHING
        return receipt

    def _is_kept(self, pair: Pair) -> bool:
        """Whether a pair of the store that is not in the index stays."""
        is_kept = not self._seen or self._may_be_named(pair)
        if is_kept:
            self._unread.add(pair)
        return is_kept

    def _may_be_named(self, pair: Pair) -> bool:
        """Whether the feed may name a pair that it has not brought."""
        if pair in self._seen:
            return False
        if _is_unresolved(pair, self._unresolved):
            self._kept.add(pair)
        return pair in self._kept or not self._was_whole

    def _write(self, write: Callable[[], Receipt], pairs: set[Pair]) -> Receipt:
        """Write these pairs, and return the receipt. Log once which of them the store does not take."""
        not_taken, rejected = set[Pair](), set[Pair]()
        try:
            receipt = write()
        except (BookTooLarge, BookRejected) as error:
            # The rest was written.
            receipt, not_taken = error.receipt, set(error.pairs)
            rejected = not_taken if isinstance(error, BookRejected) else rejected
            if not not_taken <= self._not_taken:
                LOG.warning("%s", error)
        taken = self._not_taken & pairs - not_taken
        if taken:
            LOG.info("%s: took %d pairs that it did not take before", self.target, len(taken))
        self._not_taken = self._not_taken - pairs | not_taken
        self._rejected = self._rejected - pairs | rejected
        return receipt

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _is_unresolved(pair: Pair, unresolved: frozenset[Pair | Names]) -> bool:
    """Whether a rejected record names a pair, or may name it."""
    return pair in unresolved or Names.ANY in unresolved
