"""What every feed can do: fill a `LiveIndex`, and go on following its source until it is closed."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self, TypeAlias

from market_index import LiveIndex, MarketIndexError

LOG: Final = logging.getLogger("market_index_feeds")

Progress: TypeAlias = Callable[[int, int], None]
"""Told from time to time while a source is loaded: how much was read, and of how much, in bytes; 0 of 0 for a stream.

What it raises ends the loading.
"""


class FeedError(MarketIndexError):
    """The source of a feed cannot be opened, or the name of the source is not one that is known."""


class Feed(ABC):
    """Where order books come from. Open one with `open_feed`, start it once, close it when done.

    `source` is the name it was opened by. `books` counts the order books read so far, `refused` the records that were
    skipped because they hold none; each of those was logged, with its place and the reason.

    As far as the pairs go that its source names, the `LiveIndex` is the feed's: whatever else publishes one of them is
    overwritten, and the pair is retracted when the source drops it. Other pairs are left alone.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.books = 0
        self.refused = 0
        self._closing = Event()
        self._thread: Thread | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.source}: {self.books} books, {self.refused} refused>"

    def start(self, live: LiveIndex, progress: Progress | None = None) -> None:
        """Put what the source holds now into `live`, then follow the source in a thread of its own until `close`.

        Raises `FeedError` when the source cannot be read; then nothing was published. Once started, the feed raises
        nothing: what goes wrong is logged, and what is live stays live.
        """
        if self._thread is not None or self._closing.is_set():
            raise RuntimeError("a feed is started once")
        self._load(live, progress)
        self._thread = Thread(target=self._run, args=(live,), name=f"feed {self.source}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following. What is live stays live. Closing twice does no harm."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _load(self, live: LiveIndex, progress: Progress | None) -> None:
        """Publish what the source holds now, or raise `FeedError`."""

    @abstractmethod
    def _follow(self, live: LiveIndex) -> None:
        """Publish what changes until `_closing` is set or the source has ended for good."""

    def _run(self, live: LiveIndex) -> None:
        ended = False
        while not ended and not self._closing.is_set():
            try:
                self._follow(live)
                ended = True
            except Exception:
                LOG.exception("%s: a defect; the last good index stays up, and following goes on", self.source)
                self._closing.wait(1)
