"""The class of all feeds. A feed reads its source into a `LiveIndex`, and follows it until it is closed.

Theory of operation
===================

A `Source` yields updates: its whole content, then each change of it, and an empty update for each check that finds no
change. The feed applies each update to its content and to the live index, both atomically.

    IDLE ──start, read──▶ OPEN ──close──▶ CLOSED
     ▲                     │
     └────────error────────┘

- OPEN: `start` applies the whole content in the caller's thread, then starts the thread that applies all further
  updates. If `start` raises, nothing was published, and it may be called again. The thread logs every error, waits for
  a backoff, and iterates over `Source.updates` again. Meanwhile live books stay live, and `problem` says why, until an
  update has none. Consecutive equal problems are logged once.
- CLOSED: any thread may call `close` in any state, and no transition leaves CLOSED. A `close` during `start` makes that
  raise.

One lock guards every transition and every update of the live index, so nothing is published after `close`. A thread
that does not end in time, as in a system call, is abandoned; it closes the source once the call returns. `close` waits
for the lock with the same timeout, because a signal handler may call it: the handler may have interrupted an update of
the live index that the holder of the lock waits for.

Only `Coverage` decides which pairs are retracted, and whether the as_of of the books is known. The publish time is
always known: it shows that the publisher is alive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing
from enum import Enum
from math import inf
from threading import Event, RLock, Thread, current_thread
from time import monotonic
from typing import Final, final

from attrs import frozen

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index.errors import safe_repr
from market_index_feeds.backoff import next_backoff
from market_index_feeds.coverage import Coverage
from market_index_feeds.errors import FeedError, Unavailable, reason_of
from market_index_feeds.medium import Progress, Source, Update
from market_index_feeds.opened import Closeable
from market_index_feeds.publications import Publications
from market_index_feeds.rejections import Rejections

LOG: Final = logging.getLogger(__name__)

NO_ORDER_BOOK: Final = "contains no order book"
"""The problem of a source that is blank, or whose records are all invalid."""

LACKS_PAIRS: Final = "lacks live pairs, and is not complete: it must be replaced as a whole"
"""The problem of a source that was created again, restored or rewritten."""

CLOSE_SECONDS: Final = 1.5
"""Timeout of `close`: for an interrupt of the source, the lock, and the end of the thread."""


class FeedState(Enum):
    """The states of a feed; see the module docstring."""

    IDLE = "not started"
    OPEN = "reads and follows its source"
    CLOSED = "closed"


@frozen
class Content:
    """The books of a feed, with their freshness, and what they do not cover of the source."""

    index: MarketIndex
    coverage: Coverage


_NOTHING: Final = Content(MarketIndex(), Coverage())


@final
class Feed(Closeable):
    """A source of order books. Open it with `open_feed`; then either start it and close it when done, or read it once.

    The feed owns the pairs of the `LiveIndex` that its source names. It overwrites books that others publish under
    them, and retracts a pair when the source drops it. It does not change other pairs. If others publish into the same
    `LiveIndex`, the freshness of its books is not known.

    `books` is the number of order books read so far. `revision` is that of the last change that is live, None if the
    source does not number its changes. `content` is replaced atomically.
    """

    def __init__(self, source: Source, *, clock: Callable[[], float] = monotonic) -> None:
        self.content: Content = _NOTHING
        self.books: int = 0
        self.revision: int | None = None
        self.problem: str | None = None
        """Why the live books are not known to be those of the source, as in the log; None while it is healthy."""
        self.is_unknown: bool = False
        """Whether the content of the source is unknown until its publisher publishes again. There is a problem then.

        It is if the state of the orders is unknown, the source contains no order book or lacks live pairs, or a stream
        has ended. A source that cannot be read, and is tried again, is only a `problem`.
        """
        self.retries: int = 0
        """How often the source could not be read after the start, and was tried again."""
        self._source = source
        self._clock = clock
        self._publications = Publications(clock)
        self._rejections = Rejections(source.name, source.record, clock)
        self._failing_since = 0.0
        self._healthy_at = -inf
        # Monotonic time since when books are retained without interruption; None if none is.
        self._retained_since: float | None = None
        # Whether the whole source was read at the last attempt.
        self._was_read = False
        # The index that the feed set last, as long as it is the only writer of the live index.
        self._shown: MarketIndex | None = None
        # Reentrant: a signal handler may close the feed while this thread holds the lock.
        self._lock = RLock()
        self._state = FeedState.IDLE
        self._stop = Event()
        self._thread: Thread | None = None

    def __repr__(self) -> str:
        return f"<Feed of {self.source}: {self.books} books, {self.rejected} rejected>"

    @property
    def source(self) -> str:
        """The name that the feed was opened by, without credentials."""
        return self._source.name

    @property
    def record(self) -> str:
        """The noun for the records of the source: lines, rows, values."""
        return self._source.record

    @property
    def followed_by_many(self) -> bool:
        """Whether several processes can each follow the source by themselves."""
        return self._source.followed_by_many

    @property
    def is_endless(self) -> bool:
        """Whether the source repeats itself, as a replay in a loop does. Then `read` returns its first content."""
        return self._source.is_endless

    @property
    def age(self) -> float:
        """Seconds since the source was last healthy: read, or checked and unchanged; infinite before the start."""
        return self._clock() - self._healthy_at

    @property
    def quiet_age(self) -> float:
        """Seconds since the last publication arrived, including heartbeats; infinite before the first.

        For a publication before the start, or while the source could not be read, it is the age by wall clock, from the
        clocks of the publisher and of this machine.
        """
        return self._publications.quiet_age

    @property
    def change_age(self) -> float:
        """Seconds since a publication last changed a book or a pair; infinite before the first."""
        return self._publications.change_age

    @property
    def freshness(self) -> Freshness:
        """What the read books reflect, and when they were published, as far as that is known.

        After `read_order_book` it is known for stores in files, for files and for streams. The book is not older.
        """
        return self.content.index.freshness

    @property
    def rejected(self) -> int:
        """The number of records rejected so far, because they contain no valid order book.

        The first 20 of each minute are logged, and the number of the others.
        """
        return self._rejections.count

    @property
    def current_rejections(self) -> int:
        """The number of records that are rejected now: neither overwritten by a valid record, nor removed.

        Lines that name the same pair count as one, and so do all lines that name none.
        """
        current = self._rejections.current
        return len(current) + sum(one not in current for one in self.content.coverage.invalid)

    @property
    def retained_age(self) -> float | None:
        """Seconds since when books are retained, without interruption; None if no book is retained.

        A book is retained if it is live although the source does not contain it now, or contains an invalid record of
        its pair.
        """
        since = self._retained_since
        return None if since is None else self._clock() - since

    def start(self, live: LiveIndex, progress: Progress | None = None) -> None:
        """Publish the content of the source into `live`, then follow the source in a thread until `close`.

        Raises `FeedError` if the source cannot be read, `TypeError` if `live` is not a `LiveIndex`. Then nothing was
        published, and `start` may be called again. Once started, the feed raises nothing: it logs problems, and live
        books stay live.
        """
        if type(live) is not LiveIndex:
            raise TypeError(f"live must be a LiveIndex, got {type(live).__name__}: {safe_repr(live)}")
        self._open()
        updates = self._source.updates(self._stop, progress)
        try:
            self._load(updates)
            self._follow(updates, live)
        except BaseException:
            if self._thread is not None:
                self.close()
                raise
            updates.close()
            with self._lock:
                self.content = _NOTHING
                self._state = FeedState.CLOSED if self._stop.is_set() else FeedState.IDLE
            raise

    def read(self, progress: Progress | None = None) -> MarketIndex:
        """Return the content of the source, and close the feed. A stream is read to its end, a loop once only.

        Raises `FeedError` if the source cannot be read.
        """
        self._open()
        return self._read(progress)

    def _read(self, progress: Progress | None) -> MarketIndex:
        with closing(self._updates(progress)) as updates:
            for update in updates:
                if self.is_endless and not update.is_loading:
                    break
        return self.content.index

    def updates(self, progress: Progress | None = None) -> Iterator[Update]:
        """Read the source once, a stream to its end. Yield each update once it is part of `content`, then close.

        Lines are reported as rejected by updates of their own, which are loading.

        Raises `FeedError` if the source cannot be read.
        """
        self._open()
        yield from self._updates(progress)

    def _updates(self, progress: Progress | None) -> Generator[Update, None, None]:
        try:
            with closing(self._source.updates(self._stop, progress)) as updates:
                has_more = True
                while has_more:
                    update = self._next(updates)
                    self._apply(update, None)
                    yield update
                    has_more = update.is_loading or update.has_more
                    if progress is not None and update.has_more:
                        progress(0, 0)
        except (Unavailable, OSError) as error:
            raise self._unreadable(error) from None
        finally:
            self.close()
            self._rejections.close()

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the current book of one pair, and close the feed.

        Raises `FeedError` if the source cannot be read, `PairNotFound` if it does not name the pair.
        """
        self._open()
        try:
            # Read before the book, so that the book may be newer than the freshness, but not older.
            freshness = self._source.read_freshness()
            book = self._source.read_order_book(pair)
            if book is None:
                self._read(None)
            else:
                self.content = Content(MarketIndex([book]).with_freshness(freshness), Coverage())
            return self.content.index.order_book(pair)
        except (Unavailable, OSError) as error:
            raise self._unreadable(error) from None
        finally:
            self.close()

    def close(self) -> None:
        """Stop following, within 2 seconds. Live books stay live. Closing twice does no harm.

        A thread that is blocked in a system call is abandoned. It publishes nothing more, and closes the source when
        the call returns. There is one exception: if the caller is a signal handler that interrupted an update of the
        live index, an update that waits for it is still applied.
        """
        deadline = monotonic() + CLOSE_SECONDS
        # Set before the lock is acquired, so that nothing more is published, even if the lock is held for long.
        self._stop.set()
        self._source.interrupt()
        is_locked = self._lock.acquire(timeout=max(deadline - monotonic(), 0))
        try:
            self._state, thread = FeedState.CLOSED, self._thread
        finally:
            if is_locked:
                self._lock.release()
        if thread is not None and thread is not current_thread():
            thread.join(max(deadline - monotonic(), 0))
            if thread.is_alive():
                blocked = "a read of it" if is_locked else "an update from it"
                LOG.warning("%s: closed, but %s has not returned yet", self.source, blocked)

    def _open(self) -> None:
        with self._lock:
            if self._state is not FeedState.IDLE:
                raise RuntimeError("a feed is started once, or read once")
            self._state = FeedState.OPEN

    def _load(self, updates: Generator[Update, None, None]) -> None:
        """Apply the whole content. Raises `FeedError`."""
        try:
            is_loading = True
            while is_loading:
                update = self._next(updates)
                self._apply(update, None)
                is_loading = update.is_loading
        except (Unavailable, OSError) as error:
            raise self._unreadable(error) from None

    def _next(self, updates: Generator[Update, None, None]) -> Update:
        """Return the next update while the source is loaded. Raises `FeedError` at its end, and after `close`."""
        update = next(updates, None)
        if self._stop.is_set():
            raise self._closed()
        if update is None:
            raise FeedError(f"{self.source} cannot be read: it ended before all of it was read")
        return update

    def _closed(self) -> FeedError:
        return FeedError(f"{self.source} was closed while it was loaded")

    def _unreadable(self, error: Exception) -> FeedError:
        return FeedError(f"{self.source} cannot be read: {reason_of(error)}")

    def _follow(self, updates: Generator[Update, None, None], live: LiveIndex) -> None:
        """Publish the content, and start the thread that applies further updates. Raises `FeedError`."""
        thread = Thread(target=self._run, args=(updates, live), name=f"feed {self.source}", daemon=True)
        with self._lock:
            if self._stop.is_set():
                raise self._closed()
            # The books of others have a freshness of their own.
            self._shown = None if live.current else live.current
            try:
                # Under the lock, because a thread cannot be joined before it is started.
                thread.start()
            except RuntimeError as error:  # there are too many threads
                raise FeedError(f"{self.source} cannot be followed: {reason_of(error)}") from None
            self._thread = thread
            self._show(live, self.content.index, self.content.index.values(), ())

    def _run(self, updates: Generator[Update, None, None], live: LiveIndex) -> None:
        """Apply updates until the source ends or the feed is closed."""
        with self._lock:
            pass  # until `start` has published the content
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
                self._fail(f"cannot be read: {reason_of(error)}", live)
            except Exception as error:
                problem = f"unexpected error: {reason_of(error)}"
                if problem != self.problem:
                    LOG.exception("%s: unexpected error", self.source)
                self._fail(problem, live)
            else:
                self._end()
                return
            self._rejections.end_minute()
            backoff = next_backoff(backoff)
            if self._stop.wait(backoff):
                return
            self.retries += 1
            updates = self._source.updates(self._stop, None)

    def _apply(self, update: Update, live: LiveIndex | None) -> None:
        """Apply one update atomically."""
        self._rejections.end_minute()
        if update.is_loading:
            self._rejections.add(update.rejected)
            return
        before = self.content
        coverage, retracted = before.coverage.after(update, before.index)
        self._note_retained(coverage)
        self.books += len(update.books) if update.books_read is None else update.books_read
        self._rejections.resolve(update)
        self._rejections.add(update.rejected)
        # Logged first, so that the log explains a change before it is visible.
        self._log_dropped(update, coverage, retracted)
        self._publications.add(update, is_change=bool(update.books or retracted), is_late=not self._was_read)
        freshness = self._publications.freshness
        index = before.index.without(*retracted).with_books(*update.books)
        index = index.with_freshness(freshness if coverage.is_current else freshness.without_as_of())
        with self._lock:
            if self._stop.is_set():
                return
            # First: a relay that waits for the live index reads the content.
            self.content = Content(index, coverage)
            if live is not None:
                # Also if nothing has changed, to find other writers.
                self._show(live, index, update.books, retracted)
        self.revision = self.revision if update.revision is None else update.revision
        # Its source tries again by itself.
        self.retries += update.problem is not None
        unknown = update.unknown or self._lacking()
        self._was_read, self.is_unknown = update.problem is None, unknown is not None
        self._report(unknown if update.problem is None else f"cannot be read: {update.problem}")

    def _show(
        self, live: LiveIndex, index: MarketIndex, books: Collection[OrderBook], retracted: Collection[Pair]
    ) -> None:
        """Make the content visible. Its freshness is not that of books that others published."""
        if self._shown is not None and live.show(index, instead_of=self._shown):
            self._shown = index
        else:
            self._shown = None
            live.update(books, retracted, Freshness())

    def _lacking(self) -> str | None:
        """Return why the content is not that of the source, although all of it was read; None if it is."""
        index, coverage = self.content.index, self.content.coverage
        if self._publications.is_blank or (not index and coverage.invalid):
            return NO_ORDER_BOOK
        if coverage.absent and not coverage.is_complete:
            return LACKS_PAIRS
        return None

    def _note_retained(self, coverage: Coverage) -> None:
        """Record since when books are retained: since the last time when the source was healthy."""
        index = self.content.index
        if not coverage.absent and not any(record in index for record in coverage.invalid):
            self._retained_since = None
        elif self._retained_since is None:
            self._retained_since = self._clock() if self._healthy_at == -inf else self._healthy_at

    def _log_dropped(self, update: Update, coverage: Coverage, retracted: Collection[Pair]) -> None:
        """Log what the source does not show: why it was read again, and how many pairs are dropped or kept."""
        if update.reload_reason is not None:
            LOG.info("%s: reloaded, because %s: %d pairs dropped", self.source, update.reload_reason, len(retracted))
        elif dropped := len(retracted) - len(set(update.removed).intersection(retracted)):
            LOG.info("%s: dropped %d pairs that it does not name", self.source, dropped)
        if update.replaces_all and coverage.absent and coverage.invalid:
            LOG.warning("%s: keeping %d pairs while a record is invalid", self.source, len(coverage.absent))

    def _fail(self, problem: str, live: LiveIndex) -> None:
        """Record that the source cannot be read. A content that is unknown remains so."""
        self._was_read = False
        self._report(problem)
        with self._lock:
            # No update follows that finds other writers, whose books have a freshness of their own.
            if self._shown is not None and live.current is not self._shown and not self._stop.is_set():
                self._shown = None
                live.update((), (), Freshness())

    def _report(self, problem: str | None) -> None:
        """Record the problem of the source, None if it is healthy; log it if it differs from the last one."""
        now = self._clock()
        if problem is None:
            self._healthy_at = now
        if problem == self.problem or self._stop.is_set():
            return
        if problem is None:
            LOG.info("%s: recovered after %.1f s", self.source, now - self._failing_since)
        else:
            self._failing_since = now if self.problem is None else self._failing_since
            pairs = len(self.content.index)
            LOG.warning("%s: %s%s", self.source, problem, f"; keeping its {pairs} pairs" if pairs else "")
        self.problem = problem

    def _end(self) -> None:
        """Record that the source has ended for good."""
        if self._stop.is_set():
            return
        self.is_unknown = True
        self.problem = "has ended"
        LOG.info("%s ended: %d order books read, %d %s rejected", self.source, self.books, self.rejected, self.record)
