"""A source and a store in memory, whose content, errors and limits a test sets."""

from __future__ import annotations

from collections.abc import Callable, Generator
from threading import Event, Semaphore, Thread

from market_index import Freshness, MarketIndex, OrderBook, Pair
from market_index_feeds import (
    CheckedChange,
    NoVersion,
    Position,
    Progress,
    Receipt,
    Source,
    Store,
    StoreError,
    UnknownOutcome,
    Version,
)
from market_index_feeds.errors import FeedError, problem_of
from tests.waiting import DEADLINE_SECONDS


class ScriptedSource(Source):
    """A source that reads `books`, `invalid` and `freshness` at each check.

    It raises `error`, yields `no_version`, or ends if `has_ended`. It yields a version with the
    problem of `outage`, then raises that.
    """

    def __init__(self, name: str = "scripted") -> None:
        super().__init__(name)
        self.books: dict[Pair, OrderBook] = {}
        self.invalid: set[Pair | None] = set()
        self.freshness = Freshness()
        self.error: BaseException | None = None
        self.no_version: NoVersion | None = None
        self.outage: FeedError | None = None
        self.has_ended = False
        self.reads = 0

    def publish(self, *books: OrderBook, as_of: str | None = None) -> None:
        """Add books, and set the as_of."""
        self.books |= {book.pair: book for book in books}
        self.freshness = Freshness(as_of)

    def pause(self) -> None:
        """Wait until the next check."""

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        self.reads += 1
        while not stop.is_set():
            self.pause()
            if self.error is not None:
                raise self.error
            if self.has_ended or stop.is_set():
                return
            if self.no_version is not None:
                yield self.no_version
            else:
                found = self.derive(self.books.values(), invalid=self.invalid, is_whole=True, freshness=self.freshness)
                if self.outage is not None and isinstance(found, Version):
                    yield self.version_of(found.index, problem=problem_of(self.outage))
                    raise self.outage
                yield found
            stop.wait(0.1)


class SteppedSource(ScriptedSource):
    """A scripted source that is read by another thread, one check at a time."""

    def __init__(self, name: str = "stepped") -> None:
        super().__init__(name)
        self._go, self._done = Semaphore(0), Semaphore(0)
        self._thread: Thread | None = None
        self.raised: BaseException | None = None

    def read_in_thread(self, work: Callable[[], object]) -> None:
        """Start the work that reads this source, up to its first check."""

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  # `step` raises it
                self.raised = error
            finally:
                self._done.release()

        self._thread = Thread(target=run, daemon=True)
        self._thread.start()
        self._await()

    def step(self) -> None:
        """Let one check happen, and wait until its version was used."""
        self._go.release()
        self._await()

    def end(self) -> None:
        """End the work: the source ends."""
        self.has_ended, self.error = True, None
        self._go.release()
        if self._thread is not None:
            self._thread.join(DEADLINE_SECONDS)

    def pause(self) -> None:
        """Report that the last check is over, and wait for the next one."""
        self._done.release()
        self._go.acquire()

    def _await(self) -> None:
        assert self._done.acquire(timeout=DEADLINE_SECONDS)
        if self.raised is not None:
            raise self.raised


class MemoryStore(Store):
    """A store in memory, opened several times. Books with a spot price of `too_large` are not accepted.

    `failure` is what the next calls do: raise an error, or do not tell whether they wrote.
    """

    def __init__(self, name: str = "memory") -> None:
        super().__init__(name)
        self.index = MarketIndex()
        self.number = 0
        self.invalid: frozenset[Pair | None] = frozenset()
        self.too_large: int | None = None
        self.failure: str | None = None
        self.asked = self.reads = self.updates = self.closed = 0
        self.on_update: Callable[[], None] | None = None

    def _position(self) -> Position:
        self._require_working()
        self.asked += 1
        return Position("memory", self.number)

    def _read(self) -> Version:
        self._require_working()
        self.reads += 1
        return Version(self.index, self.invalid, Position("memory", self.number))

    def _encoded(self, book: OrderBook) -> bytes:
        return b" " * (self._max_body_bytes + (book.spot == self.too_large))

    @property
    def _max_body_bytes(self) -> int:
        return 1000

    def _write(self, change: CheckedChange, after: Position | None) -> Receipt:
        self._require_working()
        if self.on_update is not None:
            self.on_update()
        stored = Version(self.index, self.invalid)
        self._require_position(after, Position("memory", self.number))
        bodies, gone = change.differences(stored)
        if self.failure != "lost":
            freshness = change.freshness_after(self.index.freshness)
            self.index = self.index.without(*gone).with_books(*[change.books[pair] for pair in bodies])
            self.index = self.index.with_freshness(freshness)
            self.invalid = frozenset() if change.is_whole else self.invalid.difference(gone, bodies)
            self.number += 1
            self.updates += 1
        if self.failure in {"lost", "written"}:
            raise UnknownOutcome(f"{self.name} did not answer")
        position = Position("memory", self.number)
        return Receipt(len(bodies), len(gone), position=position, freshness=self.index.freshness)

    def close(self) -> None:
        """Count the calls, and stay open."""
        self.closed += 1

    def _close(self) -> None:
        raise NotImplementedError

    def _require_working(self) -> None:
        if self.failure == "failing":
            raise StoreError(f"{self.name} does not work")
