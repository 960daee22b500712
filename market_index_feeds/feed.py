"""Makes a source resilient: retries and backoff; and shows its versions in a `LiveIndex`.

`Feed.versions` is the only loop. A relay and a recorder iterate over it, and so does the thread of `Feed.start`. The
loop reports what it sees to `Feed.health`. The source owns the last version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import closing, suppress
from datetime import datetime
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Event, Thread, current_thread
from time import monotonic
from typing import Final, Self, final

from market_index import LiveIndex, MarketIndex, OrderBook, Pair
from market_index.errors import safe_repr
from market_index_feeds.backoff import next_backoff
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.health import FeedHealth, HealthState
from market_index_feeds.source import NoVersion, Progress, Source, Version, utc_now

LOG: Final = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 1.5
"""How long `close` waits for the end of the thread."""


class _Closing(Event):
    """An event that an interrupted `wait` leaves usable.

    An exception of a signal handler, such as Ctrl-C, may leave the lock of an `Event` acquired.
    """

    def __init__(self) -> None:
        super().__init__()
        self._was_set, self._marks = False, SimpleQueue[None]()

    def is_set(self) -> bool:
        return self._was_set

    def set(self) -> None:
        self._was_set = True
        self._marks.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        with suppress(Empty):
            self._marks.put(self._marks.get(timeout=timeout and min(max(timeout, 0), TIMEOUT_MAX)))
        return self._was_set


@final
class Feed:
    """A source of order books. Open it with `open_feed`; then start it, iterate over its versions, or read it once.

        NEW ──start, versions, read, read_order_book──▶ IN USE
         │                                                │
         └─────────close─────────▶ CLOSED ◀──close, the end of a read──┘

    A feed is used once: in another state than NEW, these four methods raise `FeedError`. A closed feed shows and yields
    nothing more.

    `name` is the name that it was opened by, without credentials. `is_stream`: whether the source can be read only
    once, by one process. `is_endless`: whether it is a stream without an end, such as a replay in a loop. `health` says
    whether the last version is the content of the source.
    """

    def __init__(
        self, source: Source, *, clock: Callable[[], float] = monotonic, wall_clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.name: str = source.name
        self.is_stream: bool = source.is_stream
        self.is_endless: bool = source.is_endless
        self.health: FeedHealth = FeedHealth(source, clock=clock, wall_clock=wall_clock)
        self._source = source
        self._is_used = False
        self._stop: Event = _Closing()
        self._thread: Thread | None = None
        # The result of `start`.
        self._started = Future[None]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Feed of {self.name}>"

    @property
    def version(self) -> Version | None:
        """The last version, None before the first one. It is replaced atomically."""
        return self._source.last

    def start(self, live: LiveIndex, progress: Progress | None = None) -> None:
        """Show the content of the source in `live`, then follow the source in a thread until `close`.

        The live index is the feed's alone: a change by another writer is a problem, and is undone. `start` returns at
        the first version, or with a problem if the source has none yet. Once started, the feed raises nothing.

        Raises:
            FeedError: The source cannot be read, or the feed is closed or in use. Nothing was shown.
            TypeError: `live` is not a `LiveIndex`.
        """
        if type(live) is not LiveIndex:
            raise TypeError(f"live must be a LiveIndex, got {type(live).__name__}: {safe_repr(live)}")
        self._use()
        arguments = (live, self._versions(progress))
        thread = Thread(target=self._show, args=arguments, name=f"feed {self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many threads
            raise FeedError(f"{self.name} cannot be followed: {reason_of(error)}") from None
        self._thread = thread
        self._started.result()

    def read(self, progress: Progress | None = None) -> MarketIndex:
        """Return the content of the source, and close the feed.

        A stream is read to its end, and a loop to its first version.

        Raises:
            FeedError: The source cannot be read, or has no version, or the feed is closed or in use.
        """
        return self._read(lambda: self._source.versions(self._stop, progress)).index

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the book of one pair, and close the feed. `version` then has its freshness.

        Raises:
            FeedError: As for `read`.
            PairNotFound: The source does not have the pair.
        """
        return self._read(lambda: self._source.versions_of(pair, self._stop)).index.order_book(pair)

    def versions(self, progress: Progress | None = None) -> Generator[Version, None, None]:
        """Yield each version of the source, and the last one again after each check or attempt that finds no other.

        So the caller gets control at least every two seconds, as soon as there is a version. The iterator ends with
        the feed, or with a stream. Once the first attempt was successful, or the source had no version, only a stream
        that fails raises.

        Raises:
            FeedError: The source cannot be read at the first attempt, or a stream cannot be read, or the feed is closed
                or in use.
        """
        self._use()
        return self._versions(progress)

    def wait(self, seconds: float) -> bool:
        """Wait until the feed is closed, for at most some seconds; return whether it is closed."""
        return self._stop.wait(seconds)

    def close(self) -> None:
        """Stop following, within 2 seconds. What was shown stays. Closing twice does no harm.

        A thread that is blocked in a system call is abandoned; it shows nothing more.
        """
        self._stop.set()
        self._end_start(FeedError(f"{self.name} was closed while it was loaded"))
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                LOG.warning("%s: closed, but a read of it has not returned yet", self.name)

    def _use(self) -> None:
        if self._is_used or self._stop.is_set():
            state = "closed" if self._stop.is_set() else "in use"
            raise FeedError(f"{self.name} is {state}: a feed is started once, or read once")
        self._is_used = True

    def _read(self, read: Callable[[], Generator[Version | NoVersion, None, None]]) -> Version:
        self._use()
        found: Version | NoVersion | None = None
        try:
            with closing(read()) as versions:
                for found in versions:
                    if isinstance(found, Version):
                        self.health.found(found)
                    if self.is_endless or not self.is_stream:
                        break
        except (FeedError, OSError) as error:
            raise self._unreadable(error) from None
        finally:
            self.close()
            self._source.log_unlogged()
        if self.version is None:
            reason = found.reason if isinstance(found, NoVersion) else "was closed while it was read"
            raise FeedError(f"{self.name} {reason}")
        if isinstance(found, NoVersion):
            self.health.found(found)
        return self.version

    def _versions(self, progress: Progress | None) -> Generator[Version, None, None]:
        health, stop, backoff = self.health, self._stop, 0.0
        while not stop.is_set():
            try:
                with closing(self._source.versions(stop, progress)) as versions:
                    for found in versions:
                        if stop.is_set():
                            return
                        health.found(found)
                        progress = None
                        backoff = backoff if health.state is HealthState.FAILING else 0.0
                        if self.version is not None:
                            yield self.version
                        self._end_start()
            except Exception as error:  # noqa: BLE001  # `_fail` reports it
                self._fail(error)
            else:
                if not stop.is_set():
                    health.ended()
                return
            if self.version is not None and not stop.is_set():
                yield self.version
            backoff = next_backoff(backoff)
            health.retries += not stop.wait(backoff)

    def _fail(self, error: Exception) -> None:
        """Report why the source cannot be read. Raises `FeedError` at the first attempt, and if it is a stream."""
        if self._stop.is_set():
            return
        if self.health.state is HealthState.LOADING:
            raise self._unreadable(error) from error
        self.health.failed(error, is_final=self.is_stream)
        if self.is_stream:
            raise self._unreadable(error) from error

    def _show(self, live: LiveIndex, versions: Generator[Version, None, None]) -> None:
        """Show each version, until the feed is closed or the source ends."""
        shown = live.current
        try:
            for version in versions:
                if live.current is not shown:
                    problem = "its live index was changed by another writer, which a feed undoes"
                    self.health.report(HealthState.FAILING, problem)
                if live.current is not version.index:
                    live.show(version.index)
                shown = version.index
        except BaseException as error:  # noqa: BLE001  # `start` raises it
            # The loop has reported a `FeedError`.
            if not (self._end_start(error) or isinstance(error, FeedError) or self._stop.is_set()):
                self.health.report(HealthState.WAITING, f"is no longer followed: {safe_repr(error)}")
        finally:
            self._source.log_unlogged()
            self._end_start()

    def _end_start(self, error: BaseException | None = None) -> bool:
        """Let `start` return, or raise an error; return False if it has returned before."""
        try:
            if error is None:
                self._started.set_result(None)
            else:
                self._started.set_exception(error)
        except InvalidStateError:
            return False
        return True

    def _unreadable(self, error: Exception) -> FeedError:
        return FeedError(f"{self.name} cannot be read: {reason_of(error)}")
