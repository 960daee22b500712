"""Copies a feed into a store: it publishes the books of the feed, and retracts the pairs that the feed drops.

Theory of operation
===================

    COMPARING ──the store is the same──▶ PUBLISHING        any ──close──▶ CLOSED
        ▲  ▲                                 │
        │  └─the store or the feed changed───┤
        └──────FAILING ◀──error──────────────┘

- COMPARING: the whole store is made the same as the feed.
- PUBLISHING: the relay waits for changes of the feed, and publishes each. If a pair changes several times while the
  relay writes, only its last book is published.
  Once per second the store is checked: if another program has changed it, the next state is COMPARING. At each check,
  books that the servers of the store rejected are published again, except those that are too large. When the last one
  is accepted, the next state is COMPARING too.
- FAILING: the store cannot be opened or written to. After a backoff it is opened again and compared.

Until the feed is known to name all pairs, the relay retracts only those that its source retracted; `Coverage` decides
both. While the store contains other pairs, the as_of of its books is not known, and only the publish time of the feed
is relayed. Otherwise the freshness of the feed is relayed unchanged, also if no book has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum
from threading import Thread
from time import monotonic, sleep
from typing import Final

from market_index import LiveIndex, MarketIndex, OrderBook, Pair
from market_index_feeds.backoff import next_backoff
from market_index_feeds.feed import Feed
from market_index_feeds.medium import Progress
from market_index_feeds.store import BooksRejected, Receipt, Store, StoreError

LOG: Final = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 0.1
"""The maximum delay until `close` is noticed."""

CHECK_SECONDS: Final = 1.0
"""Interval between two checks for a change of the store by another program."""


class RelayState(Enum):
    """The states of a relay; see the module docstring."""

    COMPARING = "makes the whole store the same as the feed"
    PUBLISHING = "publishes each change"
    FAILING = "cannot open or write to the store, and retries"
    CLOSED = "closed"


class Relay:
    """Follows a feed, and keeps a store the same.

    The relay must be the only publisher of the store: it undoes what another program publishes there. While the store
    cannot be written to, the relay retries without end.
    """

    def __init__(self, feed: Feed, open_store: Callable[[], Store], *, check_seconds: float = CHECK_SECONDS) -> None:
        self.feed: Feed = feed
        self.live: LiveIndex = LiveIndex()
        self.target: str = ""
        self._open_store = open_store
        self._check_seconds = check_seconds
        self._store: Store | None = None
        self._state = RelayState.COMPARING
        # A flag that is polled, because a signal handler may set it. Setting an Event could deadlock: the handler may
        # interrupt a wait that holds the lock of the event.
        self._is_closing = False
        # The index that the store was last made the same as, and whether all pairs were named then.
        self._relayed = MarketIndex()
        self._named_all = False
        # The pairs that the store did not accept at the last attempt, and those of them to publish again.
        self._not_accepted: set[Pair] = set()
        self._rejected: set[Pair] = set()
        # The pairs of the store that the feed neither names nor has retracted.
        self._kept: frozenset[Pair] = frozenset()

    def start(self, progress: Progress | None = None) -> Receipt:
        """Load the feed, open the store, and make it the same. Then call `run`.

        Raises `FeedError` if the feed cannot be read, `StoreError` if the store cannot be opened or written to.
        """
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
        """Whether `close` was called."""
        return self._is_closing

    def close(self) -> None:
        """End `run`, without waiting for the store. Closing twice does no harm.

        Any thread and any signal handler may call it.
        """
        self._is_closing = True
        store = self._store
        if store is not None:
            # In a thread, because it may wait for servers.
            Thread(target=store.close, name=f"closing {store.target}", daemon=True).start()

    def _sleeps(self, seconds: float) -> bool:
        """Sleep until the time is over or the relay is closed. Return whether it is still open."""
        until = monotonic() + seconds
        while not self._is_closing and (left := until - monotonic()) > 0:
            sleep(min(left, CLOSE_SECONDS))
        return not self._is_closing

    def _keep_same(self) -> None:
        """Do the work of the current state until the next check, then check the store."""
        if self._store is None:
            self._store = self._open_store()
        if self._state is not RelayState.PUBLISHING:
            self._compare(self._store)
        elif self._rejected:
            self._publish_again(self._store)
        self._publish_changes(self._store)
        coverage = self.feed.content.coverage
        is_new = coverage.names_all_pairs and not self._named_all
        if is_new or not self._kept.isdisjoint(coverage.retracted):
            # Only now the pairs to retract are known.
            self._state = RelayState.COMPARING
        elif not self._is_closing and not self._store.is_unchanged_by_others():
            LOG.warning("%s: changed by another program; making it the same as %s", self.target, self.feed.source)
            self._state = RelayState.COMPARING

    def _fail(self, backoff: float) -> float:
        """Close the store, and return the backoff in seconds before it is opened again."""
        self._state = RelayState.FAILING
        self._close_store()
        return next_backoff(backoff)

    def _publish_changes(self, store: Store) -> None:
        """Publish the changes of the feed until the next check."""
        until, seen = monotonic() + self._check_seconds, None
        while not self._is_closing and (left := until - monotonic()) > 0:
            # The feed replaces its content before the live index. At first, a change may wait already.
            seen = self.live.wait(seen, min(left, CLOSE_SECONDS))
            current = self.feed.content.index
            if current is not self._relayed:
                before, self._relayed = self._relayed, current
                self._publish(store, *current.changes_since(before))

    def _publish_again(self, store: Store) -> None:
        """Publish again the books and removals that the servers rejected."""
        books = [book for pair in self._rejected if (book := self._relayed.get(pair)) is not None]
        self._publish(store, books, [pair for pair in self._rejected if pair not in self._relayed])

    def _publish(self, store: Store, books: Collection[OrderBook] = (), gone: Collection[Pair] = ()) -> None:
        """Publish books and retract pairs, with the current freshness."""
        pairs = {book.pair for book in books}.union(gone)
        self._kept -= pairs
        freshness = self._relayed.freshness
        freshness = freshness.without_as_of() if self._kept else freshness
        self._write(lambda: store.update(books, gone, freshness=freshness), pairs)

    def _compare(self, store: Store) -> Receipt:
        """Make the whole store the same as the feed."""
        content = self.feed.content
        index, coverage = content.index, content.coverage
        self._relayed = index
        self._named_all = coverage.names_all_pairs
        retract = None if self._named_all else coverage.retracted
        receipt = self._write(
            lambda: store.replace(index.values(), retract, freshness=index.freshness), set(self._not_accepted)
        )
        self._kept = receipt.kept
        if self._kept:
            LOG.warning(
                "%s: %d pairs are kept until %s names all pairs", store.target, len(self._kept), self.feed.source
            )
        if self._state is RelayState.FAILING:
            LOG.info("%s: recovered (revision %d)", store.target, receipt.revision)
        self._state = RelayState.PUBLISHING
        return receipt

    def _write(self, write: Callable[[], Receipt], pairs: set[Pair]) -> Receipt:
        """Write these pairs, and return the receipt. Log once which of them the store does not accept."""
        not_accepted, rejected = set[Pair](), set[Pair]()
        try:
            receipt = write()
        except BooksRejected as error:
            # All other pairs were written.
            receipt, not_accepted = error.receipt, set(error.pairs)
            rejected = not_accepted if error.can_retry else rejected
            if not not_accepted <= self._not_accepted:
                LOG.warning("%s", error)
        accepted = self._not_accepted & pairs - not_accepted
        if accepted:
            LOG.info("%s: accepted %d pairs that were too large or rejected before", self.target, len(accepted))
        self._not_accepted = self._not_accepted - pairs | not_accepted
        if accepted and not self._not_accepted:
            # Only now the store can be marked as complete.
            self._state = RelayState.COMPARING
        self._rejected = self._rejected - pairs | rejected
        return receipt

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()
