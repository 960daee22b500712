"""A rate limit for the log of rejected records: the first of each minute are logged, the others are counted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

LOG: Final = logging.getLogger(__name__)

LOGGED_PER_MINUTE: Final = 20
"""How many rejections of one source are logged per minute."""

MINUTE_SECONDS: Final = 60.0


class RejectionLog:
    """Logs the first rejections of each minute, and the number of the others when the minute ends.

    A minute starts with the first rejection after the previous minute. `record` is the noun for records: lines, rows.
    """

    def __init__(self, name: str, record: str, clock: Callable[[], float] = monotonic) -> None:
        self._name = name
        self._record = record
        self._clock = clock
        self._logged = self._unlogged = 0
        self._ends_at = 0.0

    def add(self, place: str, reason: str) -> None:
        """Log or count one rejection."""
        self.end_minute()
        if not self._logged:
            self._ends_at = self._clock() + MINUTE_SECONDS
        if self._logged < LOGGED_PER_MINUTE:
            self._logged += 1
            LOG.warning("%s %s rejected: %s", self._name, place, reason)
        else:
            self._unlogged += 1

    def end_minute(self) -> None:
        """Log the count of the others if the minute is over. The caller must call this regularly."""
        if self._logged and self._clock() >= self._ends_at:
            self.close()

    def close(self) -> None:
        """Log the count of the others, and end the minute."""
        if self._unlogged:
            LOG.warning("%s: %d more %s rejected within a minute", self._name, self._unlogged, self._record)
        self._logged = self._unlogged = 0
