"""The rejected records of a feed: each is counted and logged once, until it is valid or removed.

The first rejections of each minute are logged, the others are counted. A minute starts with the first rejection after
the previous minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable
from time import monotonic
from typing import Final

from market_index_feeds.medium import Rejected, Update

LOG: Final = logging.getLogger(__name__)

LOGGED_PER_MINUTE: Final = 20
"""How many rejections of one source are logged per minute."""

MINUTE_SECONDS: Final = 60.0


class Rejections:
    """The rejected records of a source. `count` is that of all so far.

    `current` has the records that can be overwritten, and are neither valid now nor removed. `noun` is the noun for
    records: lines, rows.
    """

    def __init__(self, name: str, noun: str, clock: Callable[[], float] = monotonic) -> None:
        self.count: int = 0
        self.current: set[Hashable] = set()
        self._name = name
        self._noun = noun
        self._clock = clock
        self._logged = self._unlogged = 0
        self._ends_at = 0.0

    def resolve(self, update: Update) -> None:
        """Forget the records that an update makes valid, or removes."""
        if update.replaces_all:
            self.current.intersection_update([rejected.record for rejected in update.rejected])
        elif self.current:
            self.current.difference_update([book.pair for book in update.books], update.removed, update.resolved)

    def add(self, records: Collection[Rejected]) -> None:
        """Count and log the records that are rejected now and were not before."""
        for rejected in records:
            if rejected.record is None or rejected.record not in self.current:
                self._log(rejected)
                self.count += 1
            if rejected.record is not None:
                self.current.add(rejected.record)

    def _log(self, rejected: Rejected) -> None:
        self.end_minute()
        if not self._logged:
            self._ends_at = self._clock() + MINUTE_SECONDS
        if self._logged < LOGGED_PER_MINUTE:
            self._logged += 1
            LOG.warning("%s %s rejected: %s", self._name, rejected.place, rejected.reason)
        else:
            self._unlogged += 1

    def end_minute(self) -> None:
        """Log the count of the others if the minute is over. The caller must call this regularly."""
        if self._logged and self._clock() >= self._ends_at:
            self.close()

    def close(self) -> None:
        """Log the count of the others, and end the minute."""
        if self._unlogged:
            LOG.warning("%s: %d more %s rejected within a minute", self._name, self._unlogged, self._noun)
        self._logged = self._unlogged = 0
