"""Updates the numbers of this process in `Counters` that are not counted when they change."""

from __future__ import annotations

import os
from math import nan
from pathlib import Path
from threading import Lock
from time import monotonic, process_time, time
from typing import Final, final

from market_index import LiveIndex, MarketIndex, Pair
from market_index_http.counters import Counters
from market_index_http.operations.health import Health
from market_index_http.waiting import Waits

_STARTED_AT: Final = time()


@final
class Observation:
    """What `/metrics` reports of one app, besides counts."""

    def __init__(self, live: LiveIndex, counters: Counters, waits: Waits, health: Health | None) -> None:
        self._live = live
        self._counters = counters
        self._waits = waits
        self._health = health
        self._seen = MarketIndex()
        self._crossed: set[Pair] = set()
        self._lock = Lock()

    def observe(self) -> None:
        """Update the numbers. It takes time for each book that has changed since the last call: call it in a thread."""
        # Otherwise a call that takes longer would replace the numbers of a later one.
        with self._lock:
            self._observe()

    def _observe(self) -> None:
        counters, index = self._counters, self._live.current
        counters.set_total("process_cpu_seconds", process_time())
        counters.set_gauge("process_start_time_seconds", _STARTED_AT)
        counters.set_gauge("process_id", os.getpid())
        counters.set_gauge("pairs", len(index))
        counters.set_gauge("crossed_pairs", self._crossed_pairs(index))
        counters.set_gauge("waiting_requests", self._waits.requests)
        if self._health is not None:
            self._observe_feed(self._health)
        counters.flush()

    def _observe_feed(self, health: Health) -> None:
        counters, feed, now = self._counters, health.feed, monotonic()
        counters.set_gauge("ready", not health.failures())
        counters.set_total("feed_rejected_records", feed.rejected)
        counters.set_total("feed_retries", feed.retries)
        counters.set_gauge("feed_revision", feed.revision)
        counters.set_gauge("feed_checked", now - feed.age)
        counters.set_gauge("feed_published", now - feed.quiet_age)
        counters.set_gauge("feed_changed", now - feed.change_age)
        counters.set_gauge("feed_current_rejections", feed.current_rejections)

    def _crossed_pairs(self, index: MarketIndex) -> int:
        changed, retracted = index.changes_since(self._seen)
        self._seen = index
        self._crossed.difference_update(retracted, [book.pair for book in changed])
        self._crossed.update([book.pair for book in changed if book.is_crossed])
        return len(self._crossed)


def resident_bytes(process: float) -> float:
    """Return the resident memory of a process in bytes; NaN if it has ended, or the system has no /proc."""
    try:
        pages = int(_folder(process).joinpath("statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        return nan
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(process: float) -> float:
    """Return how many files a process has open; NaN if it has ended, or the system has no /proc."""
    try:
        return len(list(_folder(process).joinpath("fd").iterdir()))
    except (OSError, ValueError):
        return nan


def _folder(process: float) -> Path:
    """Return the folder of a process in /proc. Raises `ValueError` for NaN."""
    return Path("/proc", str(int(process)))
