"""Makes a source resilient: retries, backoff, log and health; and shows its versions in a `LiveIndex`.

`Feed.versions` is the only loop. A relay and a recorder iterate over it, and so does the thread of `Feed.start`.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from datetime import datetime
from math import inf
from threading import Event, Thread, current_thread
from time import monotonic
from typing import Final, Self, final

from market_index import LiveIndex, MarketIndex, OrderBook, Pair, RestingOrders
from market_index.errors import safe_repr
from market_index_feeds.backoff import next_backoff
from market_index_feeds.errors import FeedError, problem_of, reason_of
from market_index_feeds.source import NoVersion, Progress, Source, Version, utc_now
from market_index_feeds.venue_orders import SkippedOutput, VenueOrder

LOG: Final = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 1.5
"""How long `close` waits for the end of the thread."""

MAX_TIMES: Final = 64
"""How many publish times are remembered: more than the replicas of a service, which may alternate between two times."""


class _Either(Event):
    """An event that is set once the event of a feed or the event of its caller is set.

    A wait returns when the event of the caller is set. That the feed was closed is noticed at the end of the wait.
    """

    def __init__(self, feed: Event, caller: Event) -> None:
        super().__init__()
        self._feed, self._caller = feed, caller

    def is_set(self) -> bool:
        return self._feed.is_set() or self._caller.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set() or self._caller.wait(timeout) or self.is_set()


@final
class Feed:
    """A source of order books. Open it with `open_feed`; then start it, iterate over its versions, or read it once.

        NEW ──start, versions, read, read_order_book──▶ IN USE
         │                                                │
         └─────────close─────────▶ CLOSED ◀──close, the end of a read──┘

    A feed is used once: in another state than NEW, these four methods raise `FeedError`. A closed feed shows and yields
    nothing more.

    `source` is the name that it was opened by, without credentials. `is_stream`: whether the source can be read only
    once, by one process. `is_endless`: whether it is a stream without an end, such as a replay in a loop.

    `version` is the last version, None before the first one. It is replaced atomically. `problem` is the reason why
    `version` may differ from the content of the source, None while the source is healthy. `is_unknown` is whether only
    the publisher can end the problem: nothing was published, or a stream has ended. `retries` is how often the source
    was read again after an error.
    """

    def __init__(
        self, source: Source, *, clock: Callable[[], float] = monotonic, wall_clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.source: str = source.name
        self.is_stream: bool = source.is_stream
        self.is_endless: bool = source.is_endless
        self.version: Version | None = None
        self.problem: str | None = None
        self.is_unknown: bool = False
        self.retries: int = 0
        self._source = source
        self._clock, self._wall_clock = clock, wall_clock
        self._healthy_at = self._published_at = self._changed_at = -inf
        self._failing_since = 0.0
        self._times: deque[datetime] = deque(maxlen=MAX_TIMES)
        self._is_used = False
        # `_stop` is what the source waits for: `_closed`, or the event of the caller too.
        self._closed = self._stop = Event()
        self._thread: Thread | None = None
        # `_tried`: set once `start` may return. `_ended`: once the thread shows nothing more.
        self._tried, self._ended = Event(), Event()
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Feed of {self.source}>"

    @property
    def rejected(self) -> int:
        """The number of records rejected so far. The first 20 per minute are logged, and then the number of the others.

        A record that is invalid now is also in `version.invalid`.
        """
        return self._source.rejected

    @property
    def current_rejections(self) -> int:
        """The number of pairs with an invalid record now; all records whose pair cannot be read count as one pair."""
        return 0 if self.version is None else len(self.version.invalid)

    @property
    def revision(self) -> int | None:
        """The revision of the last version; None if the source is not a store."""
        position = None if self.version is None else self.version.position
        return None if position is None else position.number

    @property
    def orders(self) -> RestingOrders | None:
        """The orders behind the index of `version`; None if the source has no orders, or no version yet."""
        return None if self.version is None else self.version.orders

    @property
    def venue_orders(self) -> Mapping[str, VenueOrder] | None:
        """The orders of `orders` with the venues where they can be filled; None if the source does not know them."""
        return None if self.version is None else self.version.venue_orders

    @property
    def skipped(self) -> Mapping[str, SkippedOutput]:
        """The reasons why outputs of the ledger are no orders now, by the ids of the outputs. They are not rejected."""
        return {} if self.version is None else self.version.skipped

    @property
    def skipped_by_reason(self) -> Mapping[str, int]:
        """The number of outputs of `skipped`, by reason."""
        return Counter(one.reason for one in self.skipped.values())

    @property
    def age(self) -> float:
        """Seconds since the source was last healthy: read, or checked and unchanged; infinite before."""
        return self._clock() - self._healthy_at

    @property
    def quiet_age(self) -> float:
        """Seconds since the last publication arrived, including heartbeats; infinite before the first one.

        For a publication before the start, or while the source could not be read, it is the age by the wall clocks of
        the publisher and of this machine.
        """
        return self._clock() - self._published_at

    @property
    def change_age(self) -> float:
        """Seconds since a publication last changed a book or a pair; infinite before the first one."""
        return self._clock() - self._changed_at

    def start(self, live: LiveIndex, progress: Progress | None = None) -> None:
        """Show the content of the source in `live`, then follow the source in a thread until `close`.

        The live index is the feed's alone: a change by another writer is a `problem`, and is undone. `start` returns at
        the first version, or with a `problem` if the source has none yet. Once started, the feed raises nothing.

        Raises:
            FeedError: The source cannot be read, or the feed is closed or in use. Nothing was shown.
            TypeError: `live` is not a `LiveIndex`.
        """
        if type(live) is not LiveIndex:
            raise TypeError(f"live must be a LiveIndex, got {type(live).__name__}: {safe_repr(live)}")
        self._use()
        arguments = (live, self._versions(progress))
        thread = Thread(target=self._show, args=arguments, name=f"feed {self.source}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many threads
            raise FeedError(f"{self.source} cannot be followed: {reason_of(error)}") from None
        self._thread = thread
        self._tried.wait()
        if self._error is not None:
            raise self._error
        if self._closed.is_set():
            raise FeedError(f"{self.source} was closed while it was loaded")

    def read(self, progress: Progress | None = None) -> MarketIndex:
        """Return the content of the source, and close the feed.

        A stream is read to its end, and a loop to its first version.

        Raises:
            FeedError: The source cannot be read, or has no version, or the feed is closed or in use.
        """
        self._use()
        return self._read(progress)

    def _read(self, progress: Progress | None = None) -> MarketIndex:
        self._stop = _Either(self._closed, Event())  # as in `versions`
        try:
            with closing(self._source.versions(self._stop, progress)) as versions:
                for found in versions:
                    if isinstance(found, NoVersion):
                        self.problem, self.is_unknown = found.reason, True
                    else:
                        self._note(found)
                    if self.is_endless or not self.is_stream:
                        break
        except (FeedError, OSError) as error:
            raise self._unreadable(error) from None
        finally:
            self.close()
            self._source.log_unlogged()
        if self.version is None:
            raise FeedError(f"{self.source} {self.problem or 'was closed while it was read'}")
        return self.version.index

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the book of one pair, and close the feed. `version` then has its freshness.

        Raises:
            FeedError: As for `read`.
            PairNotFound: The source does not have the pair.
        """
        self._use()
        try:
            version = self._source.read_order_book(pair)
        except (FeedError, OSError) as error:
            self.close()
            raise self._unreadable(error) from None
        if version is None:
            return self._read().order_book(pair)
        self.close()
        self.version = version
        return version.index.order_book(pair)

    def versions(self, stop: Event | None = None, progress: Progress | None = None) -> Generator[Version, None, None]:
        """Yield each version of the source, and the last one again after each check or attempt that finds no other.

        So the caller gets control at least every two seconds, as soon as there is a version. The iterator ends with
        the feed, or with a stream, or once `stop` is set. Once the first attempt was successful, or the source had no
        version, only a stream that fails raises.

        Raises:
            FeedError: The source cannot be read at the first attempt, or a stream cannot be read, or the feed is closed
                or in use.
        """
        self._use()
        # Never wait for the event that `close` sets: an exception of a signal handler may leave the lock of the event
        # that waits acquired.
        self._stop = _Either(self._closed, stop or Event())
        return self._versions(progress)

    def close(self) -> None:
        """Stop following, within 2 seconds. What was shown stays. Closing twice does no harm.

        A thread that is blocked in a system call is abandoned; it shows nothing more.
        """
        self._closed.set()
        self._tried.set()
        if self._thread is not None and self._thread is not current_thread() and not self._ended.wait(CLOSE_SECONDS):
            LOG.warning("%s: closed, but a read of it has not returned yet", self.source)

    def _use(self) -> None:
        if self._is_used or self._closed.is_set():
            state = "closed" if self._closed.is_set() else "in use"
            raise FeedError(f"{self.source} is {state}: a feed is started once, or read once")
        self._is_used = True

    def _versions(self, progress: Progress | None) -> Generator[Version, None, None]:
        stop, backoff = self._stop, 0.0
        while not stop.is_set():
            try:
                with closing(self._source.versions(stop, progress)) as versions:
                    for found in versions:
                        if stop.is_set():
                            return
                        self._note(found)
                        progress = None
                        if isinstance(found, NoVersion) or found.problem is None:
                            backoff = 0.0
                        if self.version is not None:
                            yield self.version
            except Exception as error:  # noqa: BLE001  # `_fail` logs it
                self._fail(error)
            else:
                self._end()
                return
            if self.version is not None and not stop.is_set():
                yield self.version
            backoff = next_backoff(backoff)
            if stop.wait(backoff):
                return
            self.retries += 1

    def _show(self, live: LiveIndex, versions: Generator[Version, None, None]) -> None:
        """Show each version, until the feed is closed or the source ends."""
        shown = live.current
        try:
            for version in versions:
                if live.current is not shown:
                    self._report("its live index was changed by another writer, which a feed undoes")
                if live.current is not version.index:
                    live.show(version.index)
                shown = version.index
                self._tried.set()
        except BaseException as error:  # noqa: BLE001  # `start` raises it
            self._error = error
            if self._tried.is_set() and not isinstance(error, FeedError):  # `_fail` has reported that
                self._report(f"is no longer followed: {safe_repr(error)}", is_unknown=True)
        finally:
            self._source.log_unlogged()
            self._ended.set()
            self._tried.set()

    def _note(self, found: Version | NoVersion) -> None:
        """Remember what the source yields, and update the figures of health."""
        if isinstance(found, NoVersion):
            self._report(found.reason, is_unknown=True)
            self._tried.set()
            return
        now, before, index = self._clock(), self.version, found.index
        time = index.published_at
        if found is not before:
            is_late = time is not None and (before is None or self.problem is not None)
            age = (self._wall_clock() - time).total_seconds() if is_late and time is not None else 0.0
            # Not before the last publication, even if the wall clocks say so.
            arrived_at = max(self._published_at, now - max(age, 0.0))
            if time is None or time not in self._times:
                self._published_at = arrived_at
            if time is not None and time not in self._times:
                self._times.append(time)
            if before is None or index.changes_since(before.index) != ((), ()):
                self._changed_at = arrived_at
        self.version = found
        if found.problem is None:
            self._healthy_at = now
        self._report(found.problem)

    def _fail(self, error: Exception) -> None:
        """Report why the source cannot be read. Raises `FeedError` at the first attempt, and if it is a stream."""
        problem = problem_of(error)
        if not isinstance(error, (FeedError, OSError)) and problem != self.problem:
            LOG.error("%s: unexpected error", self.source, exc_info=error)
        if self.version is None and self.problem is None:
            raise self._unreadable(error) from error
        self._report(problem, is_unknown=self.is_stream)
        if self.is_stream:
            raise self._unreadable(error) from error

    def _end(self) -> None:
        """Report that the source has ended for good, unless there is a problem that says why."""
        if not self.is_unknown and not self._stop.is_set():
            LOG.info("%s: has ended", self.source)
            self.problem, self.is_unknown = self.problem or "has ended", True

    def _unreadable(self, error: Exception) -> FeedError:
        return FeedError(f"{self.source} cannot be read: {reason_of(error)}")

    def _report(self, problem: str | None, *, is_unknown: bool = False) -> None:
        """Remember the problem, and log it if it is new."""
        if self._stop.is_set():
            return
        if problem is None and self.problem is not None:
            LOG.info("%s: recovered after %.1f s", self.source, self._clock() - self._failing_since)
        elif problem != self.problem:
            self._failing_since = self._clock() if self.problem is None else self._failing_since
            pairs = 0 if self.version is None else len(self.version.index)
            LOG.warning("%s: %s%s", self.source, problem, f"; keeping its {pairs} pairs" if pairs else "")
        self.problem, self.is_unknown = problem, is_unknown
