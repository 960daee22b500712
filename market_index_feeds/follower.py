"""The follower, which all feeds share: it applies the updates of a `Source` to a `LiveIndex`.

Theory of operation
===================

A `Source` yields updates: a `Snapshot` of its whole content, then a `Delta` for each change, and an empty `Delta` for
each check that finds no change. The follower applies each update to the live index atomically.

    IDLE ──start──▶ LOADING ──▶ FOLLOWING ◀──▶ FAILING
     ▲                 │             └──────┬─────┘
     └─────error───────┘                    └──▶ ENDED          any ──close──▶ CLOSED

- LOADING: `start` applies the first snapshot in the caller's thread, then starts the thread that applies all further
  updates. If `start` raises, nothing was published, and it may be called again.
- FOLLOWING, FAILING: the thread logs every error and retries. `Unavailable`, `OSError` and unexpected errors all lead
  to FAILING, a backoff, and a new iteration over `Source.updates`. Live books stay live. The first update without a
  problem leads back to FOLLOWING. Consecutive equal problems are logged once.
- ENDED: the source has ended, as a stream does. Live books stay live.
- CLOSED: any thread may call `close` in any state, and no transition leaves CLOSED. A `close` during LOADING makes
  `start` raise.

One lock guards every transition and every update of the live index, so nothing is published after `close`. A thread
that does not end in time, as in a system call, is abandoned; it closes the source once the call returns. `close` waits
for the lock with the same timeout, because a signal handler may call it: the handler may have interrupted an update of
the live index that the holder of the lock waits for.

Only `Ownership` decides which pairs of the live index belong to the feed. While a book is retained, or may be because a
rejected record may name any pair, the live books are of different times, so their as_of is not known. The publish time
is still known: it shows that the publisher is alive.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Hashable
from contextlib import closing
from enum import Enum
from math import inf
from threading import Event, RLock, Thread, current_thread
from time import monotonic
from typing import Final

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index.freshness import UNKNOWN
from market_index_feeds.backoff import next_backoff
from market_index_feeds.errors import FeedError, Unavailable, reason_of
from market_index_feeds.medium import Delta, Loading, Names, Progress, Rejected, Snapshot, Source, Update
from market_index_feeds.ownership import Ownership
from market_index_feeds.publications import Publications
from market_index_feeds.rejections import RejectionLog

LOG: Final = logging.getLogger(__name__)

NO_ORDER_BOOK: Final = "contains no order book"
"""The problem of a source that is blank, or whose records were all rejected."""

CLOSE_SECONDS: Final = 1.5
"""Timeout of `close`: for an interrupt of the source, the lock, and the end of the thread."""


class State(Enum):
    """The states of a follower; see the module docstring."""

    IDLE = "not started"
    LOADING = "reads the first snapshot"
    FOLLOWING = "applies updates"
    FAILING = "cannot read the source, or a part of it, and retries"
    ENDED = "the source has ended"
    CLOSED = "closed"


class Follower:
    """Applies the updates of a source to a live index. `start` follows the source, `read` reads it once.

    `Feed` documents the public attributes.
    """

    def __init__(self, source: Source) -> None:
        self.books: int = 0
        self.rejected: int = 0
        self.revision: int | None = None
        self.is_whole: bool = False
        self.is_unknown: bool = False
        self.unresolved: frozenset[Pair | Names] = frozenset()
        self._source = source
        self._ownership = Ownership()
        self.publications: Publications = Publications()
        self._freshness = UNKNOWN
        self._reported: set[Hashable] = set()
        self._rejections = RejectionLog(source.name, source.record)
        self._has_more = True
        self._problem: str | None = None
        self._failing_since = 0.0
        self._healthy_at = -inf
        # Monotonic times since when books are retained.
        self._retained_since: dict[Pair, float] = {}
        self._oldest_retained_since = inf
        # Reentrant: a signal handler may close the feed while this thread holds the lock.
        self._lock = RLock()
        self._state = State.IDLE
        self._stop = Event()
        self._thread: Thread | None = None

    @property
    def state(self) -> State:
        """The current state."""
        return self._state

    @property
    def age(self) -> float:
        """Seconds since the source was last healthy: read, or checked and unchanged; infinite before the start."""
        return monotonic() - self._healthy_at

    @property
    def problem(self) -> str | None:
        """Why the live books are not known to be those of the source; None while it is healthy."""
        return self._problem

    @property
    def freshness(self) -> Freshness:
        """The freshness of the books that were read."""
        return self._freshness

    @property
    def current_rejections(self) -> int:
        """The number of records that are rejected now."""
        return self._ownership.rejections

    @property
    def retained_age(self) -> float | None:
        """Seconds since the source last contained the oldest retained book; None if no book is retained."""
        since = self._oldest_retained_since
        return None if since == inf else monotonic() - since

    def start(self, live: LiveIndex, progress: Progress | None) -> None:
        """Apply the first snapshot, then start the thread that applies all further updates. Raises `FeedError`."""
        self._begin()
        try:
            updates = self._first(live, progress)
        except BaseException:
            self._move(State.LOADING, State.IDLE)
            raise
        try:
            with self._lock:
                if self._state is State.LOADING and not self._stop.is_set():
                    thread = Thread(
                        target=self._run, args=(updates, live), name=f"feed {self._source.name}", daemon=True
                    )
                    # Under the lock, because a thread cannot be joined before it is started.
                    thread.start()
                    self._state = State.FOLLOWING if self._problem is None else State.FAILING
                    self._thread = thread
                    return
        except RuntimeError as error:  # there are too many threads
            updates.close()
            self._move(State.LOADING, State.IDLE)
            raise FeedError(f"{self._source.name} cannot be followed: {reason_of(error)}") from None
        updates.close()
        raise self._closed()

    def read(self, progress: Progress | None) -> MarketIndex:
        """Return the whole content of the source, and close. Raises `FeedError`."""
        self._begin()
        try:
            return self._read(progress)
        except (Unavailable, OSError) as error:
            raise self._unreadable(error) from None
        finally:
            self.close()
            self._rejections.close()

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the book of one pair, and close. Raises `FeedError` and `PairNotFound`."""
        self._begin()
        try:
            # Read before the book, so that the book may be newer than the freshness, but not older.
            self._freshness = self._source.read_freshness()
            book = self._source.read_order_book(pair)
            return self._read(None).order_book(pair) if book is None else book
        except (Unavailable, OSError) as error:
            raise self._unreadable(error) from None
        finally:
            self.close()

    def close(self) -> None:
        """Stop, and wait until the source is closed, unless the caller is the follower's own thread.

        Nothing is published afterwards, with one exception: if the caller is a signal handler that interrupted an
        update of the live index, an update that waits for it is still applied. A thread that has not ended after
        `CLOSE_SECONDS` is abandoned.
        """
        deadline = monotonic() + CLOSE_SECONDS
        # Set before the lock is acquired, so that nothing more is published, even if the lock is held for long.
        self._stop.set()
        self._source.interrupt()
        is_locked = self._lock.acquire(timeout=max(deadline - monotonic(), 0))
        try:
            self._state, thread = State.CLOSED, self._thread
        finally:
            if is_locked:
                self._lock.release()
        if thread is not None and thread is not current_thread():
            thread.join(max(deadline - monotonic(), 0))
            if thread.is_alive():
                blocked = "a read of it" if is_locked else "an update from it"
                LOG.warning("%s: closed, but %s has not returned yet", self._source.name, blocked)

    def _begin(self) -> None:
        with self._lock:
            if self._state is not State.IDLE:
                raise RuntimeError("a feed is started once, or read once")
            self._state = State.LOADING

    def _first(self, live: LiveIndex, progress: Progress | None) -> Generator[Update, None, None]:
        """Apply the first snapshot, and return the generator of all further updates. Raises `FeedError`."""
        updates = self._source.updates(self._stop, progress)
        try:
            while isinstance(update := self._next(updates), Loading):
                self._apply(update, live)
            self._apply(update, live)
        except (Unavailable, OSError) as error:
            updates.close()
            raise self._unreadable(error) from None
        except BaseException:
            updates.close()
            raise
        return updates

    def _read(self, progress: Progress | None) -> MarketIndex:
        live = LiveIndex()
        with closing(self._first(live, progress)) as updates:
            while self._has_more:
                if progress is not None:
                    progress(0, 0)
                self._apply(self._next(updates), live)
        return live.current

    def _next(self, updates: Generator[Update, None, None]) -> Update:
        """Return the next update while the source is loaded. Raises `FeedError` at its end, and after `close`."""
        update = next(updates, None)
        if self._stop.is_set():
            raise self._closed()
        if update is None:
            raise FeedError(f"{self._source.name} cannot be read: it ended before all of it was read")
        return update

    def _closed(self) -> FeedError:
        return FeedError(f"{self._source.name} was closed while it was loaded")

    def _unreadable(self, error: Exception) -> FeedError:
        return FeedError(f"{self._source.name} cannot be read: {reason_of(error)}")

    def _move(self, before: State, after: State) -> None:
        """Make a transition from `before` to `after`, unless another thread changed the state."""
        with self._lock:
            if self._state is before:
                self._state = after

    def _run(self, updates: Generator[Update, None, None], live: LiveIndex) -> None:
        """Apply updates until the source ends or the follower is closed."""
        try:
            self._apply_all(updates, live)
        finally:
            self._rejections.close()

    def _apply_all(self, updates: Generator[Update, None, None], live: LiveIndex) -> None:
        backoff = 0.0
        while True:
            try:
                with closing(updates):  # closing the source may raise as well
                    for update in updates:
                        if self._stop.is_set():
                            return
                        self._apply(update, live)
                        backoff = 0.0
            except (Unavailable, OSError) as error:
                if isinstance(error, Unavailable) and error.is_final:
                    self._end(error.reason)
                    return
                self._report(f"cannot be read: {reason_of(error)}")
            except Exception as error:
                problem = f"unexpected error: {reason_of(error)}"
                if problem != self._problem:
                    LOG.exception("%s: unexpected error", self._source.name)
                self._report(problem)
            else:
                self._end()
                return
            self._rejections.end_minute()
            backoff = next_backoff(backoff)
            if self._stop.wait(backoff):
                return
            updates = self._source.updates(self._stop, None)

    def _apply(self, update: Update, live: LiveIndex) -> None:
        """Apply one update atomically."""
        self._rejections.end_minute()
        if isinstance(update, Loading):
            self._reject(update.rejected)
            return
        owned = self._ownership
        retracted = owned.replace(update) if isinstance(update, Snapshot) else owned.change(update)
        self._note_retained()
        self._count(update)
        self._reject(update.rejected)
        self._log_dropped(update, retracted)
        is_change = bool(update.books or retracted)
        is_late = self._healthy_at == -inf or self._problem is not None
        self.publications.add(update, is_change=is_change, is_late=is_late)
        freshness = self.publications.freshness
        freshness = freshness if owned.is_current else freshness.without_as_of()
        # Logged first, so that the log explains a change before it is visible.
        if is_change or freshness != self._freshness:
            with self._lock:
                if self._stop.is_set():
                    return
                live.update_from(self, update.books, retracted, freshness)
            self._freshness = freshness
        # Set after the index, so that a caller that reads this first misses no book of a resolved pair.
        self.unresolved = owned.unresolved
        self.is_whole, self._has_more = update.is_whole, update.has_more
        self.revision = self.revision if update.revision is None else update.revision
        if update.problem is not None:
            self._report(f"cannot be read: {update.problem}")
        else:
            has_no_book = owned.is_blank and (owned.kept or self.publications.is_blank)
            unknown = NO_ORDER_BOOK if has_no_book or owned.has_only_rejections else None
            self._report(update.unknown or unknown, is_unknown=True)

    def _note_retained(self) -> None:
        """Record since when books are retained: since the last time when the source was healthy."""
        now = monotonic() if self._healthy_at == -inf else self._healthy_at
        self._retained_since = {pair: self._retained_since.get(pair, now) for pair in self._ownership.retained}
        self._oldest_retained_since = min(self._retained_since.values(), default=inf)

    def _count(self, update: Snapshot | Delta) -> None:
        """Count the books, and forget the rejections of records that are valid now, or removed."""
        self.books += len(update.books) if update.books_read is None else update.books_read
        if isinstance(update, Snapshot):
            self._reported.intersection_update([rejected.record for rejected in update.rejected])
        else:
            gone = *update.removed, *update.removed_records
            self._reported.difference_update([book.pair for book in update.books], gone)

    def _reject(self, records: Collection[Rejected]) -> None:
        """Count and log each rejected record once, until it is valid or removed."""
        for rejected in records:
            if rejected.record is None or rejected.record not in self._reported:
                self._rejections.add(rejected.place, rejected.reason)
                self.rejected += 1
            if rejected.record is not None:
                self._reported.add(rejected.record)

    def _log_dropped(self, update: Snapshot | Delta, retracted: set[Pair]) -> None:
        """Log what the source does not show: why it was read again, and how many pairs are dropped or kept."""
        name, kept = self._source.name, self._ownership.kept
        if isinstance(update, Delta):
            unnamed = retracted.difference(update.removed)
            if unnamed:
                LOG.info("%s: dropped %d pairs that it does not name", name, len(unnamed))
            return
        if update.reload_reason is not None:
            LOG.info("%s: reloaded, because %s: %d pairs dropped", name, update.reload_reason, len(retracted))
        if kept and not self._ownership.is_blank:
            LOG.warning("%s: keeping %d pairs that rejected or unfinished records may name", name, kept)

    def _report(self, problem: str | None, *, is_unknown: bool = False) -> None:
        """Record the problem of the source, None if it is healthy; log it if it differs from the last one.

        A content that is unknown remains so while the source cannot be read.
        """
        now = monotonic()
        self.is_unknown = problem is not None and (is_unknown or self.is_unknown)
        if problem is None:
            self._healthy_at = now
        if problem == self._problem or self._stop.is_set():
            return
        if problem is None:
            LOG.info("%s: recovered after %.1f s", self._source.name, now - self._failing_since)
            self._move(State.FAILING, State.FOLLOWING)
        else:
            self._failing_since = now if self._problem is None else self._failing_since
            kept = f"; keeping its {len(self._ownership)} pairs" if len(self._ownership) else ""
            LOG.warning("%s: %s%s", self._source.name, problem, kept)
            self._move(State.FOLLOWING, State.FAILING)
        self._problem = problem

    def _end(self, reason: str | None = None) -> None:
        """Record that the source has ended for good."""
        with self._lock:
            if self._state is State.CLOSED:
                return
            self._state = State.ENDED
        name = self._source.name
        self.is_unknown = True
        self._problem = "has ended" if reason is None else f"cannot be read: {reason}"
        if reason is not None:
            LOG.error("%s: cannot be read: %s", name, reason)
        LOG.info("%s ended: %d order books read, %d %s rejected", name, self.books, self.rejected, self._source.record)
