"""The former base class of feeds, until the NATS feed is a `Source` too."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Hashable
from math import inf
from threading import Event, Thread
from time import monotonic
from typing import Final

from market_index import LiveIndex, MarketIndex, MarketIndexError, OrderBook, Pair
from market_index_feeds.medium import Progress
from market_index_feeds.opened import Opened

LOG: Final = logging.getLogger("market_index_feeds")


class Feed(Opened):
    """Where order books come from. Open one with `open_feed`, start it and close it when done, or read it once.

    `source` is the name it was opened by. `books` counts the order books read so far, `rejected` the records that were
    skipped because they hold none; each of those was logged, with its place and the reason. `record` says what such a
    record is called. `revision` is the source's own count of its changes, as far as they are live, or None where it
    keeps none. `followed_by_many` is whether several processes can each follow the source by themselves.

    `is_whole` is whether all that the source held was read, once it is started: of a stream, at its end.

    As far as the pairs go that its source names, the `LiveIndex` is the feed's: whatever else publishes one of them is
    overwritten, and the pair is retracted when the source drops it. Other pairs are left alone.
    """

    record = "lines"
    followed_by_many = True
    is_whole = True

    def __init__(self, source: str) -> None:
        self.source = source
        self.books = 0
        self.rejected = 0
        self.revision: int | None = None
        self._good_at = -inf
        self._trouble: str | None = None
        self._begun = False
        # The records that hold no book, and were told of.
        self._unreadable: set[Hashable] = set()
        self._closing = Event()
        self._thread: Thread | None = None

    def __repr__(self) -> str:
        return f"<Feed of {self.source}: {self.books} books, {self.rejected} rejected>"

    def start(self, live: LiveIndex, progress: Progress | None = None) -> None:
        """Put what the source holds now into `live`, then follow the source in a thread of its own until `close`.

        Raises `FeedError` when the source cannot be read; then nothing was published, and the feed can be started
        again. Once started, it raises nothing: what goes wrong is logged, and what is live stays live.
        """
        self._begin()
        try:
            self._load(live, progress)
        except BaseException:
            self._begun = False
            self._release()
            raise
        self._tell(None)
        self._thread = Thread(target=self._run, args=(live,), name=f"feed {self.source}", daemon=True)
        self._thread.start()

    def read(self, progress: Progress | None = None) -> MarketIndex:
        """Return what the source holds now, instead of following it, and close it; a stream is read to its end.

        Raises `FeedError` when the source cannot be read.
        """
        self._begin()
        with self:
            live = LiveIndex()
            self._load(live, progress)
            return live.current

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the book of one pair as the source holds it now, and close it.

        Raises `FeedError` when the source cannot be read, `PairNotFound` when it does not name the pair.
        """
        return self.read().order_book(pair)

    @property
    def age(self) -> float:
        """Seconds since the source was last known to be good: read, or found as it was; infinite before the start."""
        return monotonic() - self._good_at

    def close(self) -> None:
        """Stop following. What is live stays live. Closing twice does no harm."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._release()

    @abstractmethod
    def _load(self, live: LiveIndex, progress: Progress | None) -> None:
        """Publish what the source holds now, or raise `FeedError`."""

    def _release(self) -> None:  # a stream has nothing to let go of
        """Let go of the source."""

    @abstractmethod
    def _follow(self, live: LiveIndex) -> None:
        """Publish what changes until `_closing` is set or the source has ended for good."""

    def _begin(self) -> None:
        if self._begun or self._closing.is_set():
            raise RuntimeError("a feed is started once, or read once")
        self._begun = True

    def _tell(self, trouble: str | None, why: str = "") -> None:
        """Note that the source is good, or log once what is wrong with it, and why, and once that it is over."""
        if trouble is None:
            self._good_at = monotonic()
        if trouble != self._trouble:
            if trouble is None:
                LOG.info("%s is followed again", self.source)
            else:
                LOG.warning("%s %s%s", self.source, trouble, why)
            self._trouble = trouble

    def _taken(self, record: Hashable, shown_as: str, read: Callable[[], OrderBook]) -> OrderBook | None:
        """Return the book that is read of a record, or None where it holds none: that is counted and logged once.

        `shown_as` is what the log calls the record.
        """
        try:
            book = read()
        except MarketIndexError as error:
            if record not in self._unreadable:
                self._unreadable.add(record)
                self.rejected += 1
                LOG.warning("%s %s rejected: %s", self.source, shown_as, error)
            return None
        self._unreadable.discard(record)
        self.books += 1
        return book

    def _run(self, live: LiveIndex) -> None:
        ended = False
        while not ended and not self._closing.is_set():
            try:
                self._follow(live)
                ended = True
            except Exception:
                LOG.exception("%s: a defect; the last good index stays up, and following goes on", self.source)
                self._closing.wait(1)
