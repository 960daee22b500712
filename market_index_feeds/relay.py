"""Copies a feed into a store: it publishes the books of the feed, and retracts the pairs that the feed drops.

Theory of operation
===================

    COMPARING ──the store is the same──▶ PUBLISHING        any ──close──▶ CLOSED
        ▲  ▲                                 │
        │  └─the store or the feed changed───┤
        └──────FAILING ◀──error──────────────┘

- COMPARING: the whole store is made the same as the feed.
- PUBLISHING: each change of the feed is published. If a pair changes several times in between, only its last book is.
  Once per second the store is checked: if another program has changed it, the next state is COMPARING. At each check,
  books that the servers of the store rejected are published again, except those that are too large.
- FAILING: the store cannot be opened or written to. After a backoff it is opened again and compared.

The relay retracts no pair that the feed may still name: no pair before the feed had a book; no pair that a rejected
record names or may name; and before the end of a stream, only pairs that the stream had and dropped. While the store
contains such kept pairs, the as_of of its books is not known, and only the publish time of the feed is relayed.
Otherwise the freshness of the feed is relayed unchanged, also if no book has changed.
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
"""Interval between two checks for a change of the feed."""

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

    def __init__(self, feed: Feed, open_store: Callable[[], Store]) -> None:
        self.feed: Feed = feed
        self.live: LiveIndex = LiveIndex()
        self.target: str = ""
        self._open_store = open_store
        self._store: Store | None = None
        self._state = RelayState.COMPARING
        # A flag that is polled, because a signal handler may set it. Setting an Event could deadlock: the handler may
        # interrupt a wait that holds the lock of the event.
        self._is_closing = False
        # The index that the store was last made the same as.
        self._relayed = self.live.current
        self._seen: set[Pair] = set()
        # The pairs that the store did not accept at the last attempt, and those of them to publish again.
        self._not_accepted: set[Pair] = set()
        self._rejected: set[Pair] = set()
        # What rejected records named at the last comparison, and the pairs that were kept for that reason.
        self._unresolved = self.feed.unresolved
        self._kept: set[Pair] = set()
        # The pairs of the store of which the feed had no book yet.
        self._unread: set[Pair] = set()
        # Whether the feed was whole at the last comparison.
        self._was_whole = False

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
            sleep(min(left, POLL_SECONDS))
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
        if self.feed.is_whole and not self._was_whole:
            # Only now the pairs that it does not name are known.
            self._state = RelayState.COMPARING
        elif not all(_is_unresolved(pair, self.feed.unresolved) for pair in self._kept):
            # The record that may have named the pair is valid now, or removed.
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
        until = monotonic() + CHECK_SECONDS
        while monotonic() < until and self._sleeps(POLL_SECONDS):
            current = self.live.current
            if current is not self._relayed:
                before, self._relayed = self._relayed, current
                self._publish(store, *current.changes_since(before))

    def _publish_again(self, store: Store) -> None:
        """Publish again the books and removals that the servers rejected."""
        books = [book for pair in self._rejected if (book := self._relayed.get(pair)) is not None]
        self._publish(store, books, [pair for pair in self._rejected if pair not in self._relayed])

    def _publish(self, store: Store, books: Collection[OrderBook] = (), gone: Collection[Pair] = ()) -> None:
        """Publish books and retract pairs, with the current freshness."""
        pairs = {book.pair for book in books}
        self._seen |= pairs
        self._unread -= pairs
        freshness = self._freshness()
        self._write(lambda: store.update(books, gone, freshness=freshness), pairs.union(gone))

    def _freshness(self) -> Freshness:
        """Return the freshness of the store once it contains `_relayed`."""
        freshness = self._relayed.freshness
        return freshness.without_as_of() if self._unread else freshness

    def _compare(self, store: Store) -> Receipt:
        """Make the whole store the same as the feed."""
        self._was_whole = self.feed.is_whole
        self._kept.clear()
        self._unread.clear()
        # Read before the index, so that the index contains the book of every resolved pair.
        self._unresolved = self.feed.unresolved
        index = self._relayed = self.live.current
        self._seen.update(index)
        # Which pairs are kept is known only after the freshness is chosen.
        may_keep = not (self._was_whole and self._seen and self._unresolved <= {Names.NONE})
        freshness = index.freshness.without_as_of() if may_keep else index.freshness
        receipt = self._write(
            lambda: store.replace(index.values(), self._is_kept, freshness=freshness), set(self._not_accepted)
        )
        if freshness != self._freshness():
            self._publish(store)
        if not self._seen:
            LOG.warning("%s: no order book yet; nothing of %s is retracted", self.feed.source, store.target)
        if self._state is RelayState.FAILING:
            LOG.info("%s: recovered (revision %d)", store.target, receipt.revision)
        self._state = RelayState.PUBLISHING
        return receipt

    def _is_kept(self, pair: Pair) -> bool:
        """Whether a pair of the store is kept although it is not in the index."""
        is_kept = not self._seen or self._may_be_named(pair)
        if is_kept:
            self._unread.add(pair)
        return is_kept

    def _may_be_named(self, pair: Pair) -> bool:
        """Whether the feed may name a pair of which it had no book yet."""
        if pair in self._seen:
            return False
        if _is_unresolved(pair, self._unresolved):
            self._kept.add(pair)
        return pair in self._kept or not self._was_whole

    def _write(self, write: Callable[[], Receipt], pairs: set[Pair]) -> Receipt:
        """Write these pairs, and return the receipt. Log once which of them the store does not accept."""
        not_accepted, rejected = set[Pair](), set[Pair]()
        try:
            receipt = write()
        except (BookTooLarge, BookRejected) as error:
            # All other pairs were written.
            receipt, not_accepted = error.receipt, set(error.pairs)
            rejected = not_accepted if isinstance(error, BookRejected) else rejected
            if not not_accepted <= self._not_accepted:
                LOG.warning("%s", error)
        accepted = self._not_accepted & pairs - not_accepted
        if accepted:
            LOG.info("%s: accepted %d pairs that were too large or rejected before", self.target, len(accepted))
        self._not_accepted = self._not_accepted - pairs | not_accepted
        self._rejected = self._rejected - pairs | rejected
        return receipt

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _is_unresolved(pair: Pair, unresolved: frozenset[Pair | Names]) -> bool:
    """Whether a rejected or unfinished record names a pair, or may name any."""
    return pair in unresolved or Names.ANY in unresolved
