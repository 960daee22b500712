"""Detects the publications of a source: how fresh its books are, and when its publisher last published.

Theory of operation
    A publication is any write of the publisher: books, retractions, or only the publish time, which is a heartbeat. It
    is detected by a new publish time; if the publish time is not known, by a new book, revision or as_of.

    A publish time that was seen before is no publication: a relay that restarts makes revisions with the time that it
    relays, and replicas of a service, one of which is behind, alternate between two times. A book that changes under
    the latest time is a publication: publishers write the books of a bucket before the time.

    The age of a publication is the monotonic time since its arrival, so wall clocks may jump or differ. A publication
    that was made before the source could be read arrives late. Its delay is known only from wall clocks: that of the
    publisher and that of this machine. The delay is at least zero, if the clock of the publisher is ahead. It is at
    most the age of the previous publication, if that clock is behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from time import monotonic
from typing import Final

from market_index import Freshness
from market_index_feeds.medium import Update

MAX_TIMES: Final = 64
"""How many publish times are remembered: more than the replicas of a service."""


def utc_now() -> datetime:
    """Return the time of the wall clock of this machine."""
    return datetime.now(UTC)


class Publications:
    """When the publications of one source arrived, and the freshness of the last one."""

    def __init__(self, clock: Callable[[], float] = monotonic, wall_clock: Callable[[], datetime] = utc_now) -> None:
        self._clock, self._wall_clock = clock, wall_clock
        self.freshness: Freshness = Freshness()
        self.is_blank: bool = True
        """Whether the source is empty, as if nothing was ever published."""
        self._revision: int | None = None
        self._times: deque[datetime] = deque(maxlen=MAX_TIMES)
        self._last_at = self._changed_at = -inf

    @property
    def quiet_age(self) -> float:
        """Seconds since the last publication; infinite before the first."""
        return self._clock() - self._last_at

    @property
    def change_age(self) -> float:
        """Seconds since a publication last changed a book or a pair; infinite before the first."""
        return self._clock() - self._changed_at

    def add(self, update: Update, *, is_change: bool, is_late: bool) -> None:
        """Add an update, which may be a publication.

        `is_change`: whether it changed the live index. `is_late`: whether it may have been published long before it was
        read.
        """
        freshness = update.freshness
        if freshness is None:
            freshness = Freshness() if update.replaces_all else self.freshness
        if update.replaces_all:
            self.is_blank = update.is_blank
        elif is_change or freshness != Freshness():
            # Also without a publication: a relay may store again what was seen before.
            self.is_blank = False
        is_first = self._last_at == -inf and not self.is_blank
        is_new = self._is_new(freshness, update.revision, is_change=is_change)
        if not update.is_blank and (is_first or is_new or update.is_publication):
            self.is_blank = False
            # Not before the last one, even if the wall clocks say so.
            self._last_at = max(self._last_at, self._clock() - (self._age(freshness) if is_late else 0))
            if is_change:
                self._changed_at = self._last_at
        if freshness.published_at is not None and freshness.published_at not in self._times:
            self._times.append(freshness.published_at)
        self.freshness = freshness
        self._revision = self._revision if update.revision is None else update.revision

    def _is_new(self, freshness: Freshness, revision: int | None, *, is_change: bool) -> bool:
        """Whether a freshness, a revision or a change indicates a publication."""
        time, last = freshness.published_at, self.freshness.published_at
        if is_change and time in {last, None}:
            return True
        if time is not None:
            return time not in self._times
        return last is None and (freshness != self.freshness or revision not in {None, self._revision})

    def _age(self, freshness: Freshness) -> float:
        """Return the age of a publication in seconds, by two wall clocks; 0 if it is not known."""
        if freshness.published_at is None:
            return 0
        return max(0, (self._wall_clock() - freshness.published_at).total_seconds())
