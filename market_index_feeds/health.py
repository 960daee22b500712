"""The health of a feed: its state, the figures for probes and metrics, and the log.

Theory of operation
===================

    LOADING ──▶ HEALTHY ◀──▶ FAILING ◀──▶ WAITING ──▶ ENDED

The loop of the feed reports what it sees: a version, no version, an error, or the end. Each report may lead to any
state but LOADING. A new problem is logged once, and the recovery from it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from math import inf
from time import monotonic
from typing import Final, final

from market_index import MarketIndex
from market_index.wire import format_time
from market_index_feeds.errors import FeedError, problem_of
from market_index_feeds.source import NoVersion, Source, Version, utc_now

LOG: Final = logging.getLogger(__name__)

MAX_AHEAD: Final = timedelta(seconds=60)
"""How far the clock of a publisher may be ahead of that of this machine."""


class HealthState(Enum):
    """The states of a feed."""

    LOADING = "nothing was read yet"
    HEALTHY = "the last version is the content of the source"
    FAILING = "the source cannot be read as a whole now, and is read again"
    WAITING = "only the publisher can end the problem"
    ENDED = "the source was read to its end"


@final
class FeedHealth:
    """The health of one feed.

    `problem` is the reason why the last version may differ from the content of the source, None while it is healthy.
    `retries` is how often the source was read again after an error.
    """

    def __init__(
        self, source: Source, *, clock: Callable[[], float] = monotonic, wall_clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.state: HealthState = HealthState.LOADING
        self.problem: str | None = None
        self.retries: int = 0
        self._source, self._clock, self._wall_clock = source, clock, wall_clock
        self._healthy_at = self._published_at = self._changed_at = -inf
        self._failing_since = 0.0
        # What was found last, for the times of the next publication and change.
        self._index = MarketIndex()

    def __repr__(self) -> str:
        return f"<FeedHealth of {self._source.name}: {self.state.name}>"

    @property
    def age(self) -> float:
        """Seconds since the source was last healthy: read, or checked and unchanged; infinite before."""
        return self._clock() - self._healthy_at

    @property
    def quiet_age(self) -> float:
        """Seconds since the last publication, including heartbeats; infinite before the first one.

        It is the age by the wall clocks of the publisher and of this machine: for the ledger, the age of the last
        block. If the source does not say when it was published, it is the time since it arrived.
        """
        return self._clock() - self._published_at

    @property
    def change_age(self) -> float:
        """Seconds since a publication last changed a book or a pair; infinite before the first one."""
        return self._clock() - self._changed_at

    @property
    def is_unknown(self) -> bool:
        """Whether only the publisher can end the problem: nothing was published, or a stream has ended."""
        return self.state in {HealthState.WAITING, HealthState.ENDED}

    @property
    def rejected(self) -> int:
        """The number of records rejected so far. The first 20 per minute are logged, and then the number of the others.

        A record that is invalid now is also in `invalid` of the last version.
        """
        return self._source.rejected

    @property
    def current_rejections(self) -> int:
        """The number of pairs with an invalid record now; all records whose pair cannot be read count as one pair."""
        return 0 if self._source.last is None else len(self._source.last.invalid)

    @property
    def revision(self) -> int | None:
        """The revision of the last version; None if the source is not a store."""
        position = None if self._source.last is None else self._source.last.position
        return None if position is None else position.number

    @property
    def saturated_levels(self) -> int:
        """The number of levels that show 2^64-1, because there are orders for as much or more (decision 26)."""
        orders = None if self._source.last is None else self._source.last.orders
        return 0 if orders is None else sum(orders.saturated.values())

    @property
    def skipped_by_reason(self) -> Mapping[str, int]:
        """The number of outputs of the ledger that are no orders now, by reason. They are not rejected."""
        return {} if self._source.last is None else Counter(one.reason for one in self._source.last.skipped.values())

    @property
    def figures(self) -> Mapping[str, float]:
        """Numbers of the medium by their names, such as the last slot of the ledger, and its orders by venue."""
        return self._source.figures

    def found(self, found: Version | NoVersion) -> None:
        """Report what the source yields."""
        if isinstance(found, NoVersion):
            self.report(HealthState.WAITING, found.reason)
            return
        now, index, before = self._clock(), found.index, self._index
        if index is not before:
            self._index, time = index, index.published_at
            age = 0.0 if time is None else (self._wall_clock() - time).total_seconds()
            self._published_at = arrived_at = now - max(age, 0.0)
            if self.state is HealthState.LOADING or index.changes_since(before) != ((), ()):
                self._changed_at = arrived_at
        problem, time = found.problem, index.published_at
        if problem is None and time is not None and time > self._wall_clock() + MAX_AHEAD:
            problem = f"was published at {format_time(time)}, which is in the future: compare the clocks"
        if problem is None:
            self._healthy_at = now
            self.report(HealthState.HEALTHY, None)
        else:
            self.report(HealthState.FAILING, problem)

    def failed(self, error: Exception, *, is_final: bool) -> None:
        """Report why the source cannot be read. `is_final`: whether it will not be read again."""
        problem = problem_of(error)
        if not isinstance(error, (FeedError, OSError)) and problem != self.problem:
            LOG.error("%s: unexpected error", self._source.name, exc_info=error)
        self.report(HealthState.WAITING if is_final else HealthState.FAILING, problem)

    def ended(self) -> None:
        """Report that the source has ended. A problem stays: nothing ends it any more."""
        if self.problem is None:
            LOG.info("%s: has ended", self._source.name)
            self.state, self.problem = HealthState.ENDED, "has ended"
        else:
            self.state = HealthState.WAITING

    def report(self, state: HealthState, problem: str | None) -> None:
        """Set the state and the problem, and log the problem if it is new, or the recovery."""
        name, last = self._source.name, self._source.last
        if problem is None and self.problem is not None:
            LOG.info("%s: recovered after %.1f s", name, self._clock() - self._failing_since)
        elif problem != self.problem:
            self._failing_since = self._clock() if self.problem is None else self._failing_since
            keeping = f"; keeping its {len(last.index)} pairs" if last is not None and last.index else ""
            LOG.warning("%s: %s%s", name, problem, keeping)
        self.state, self.problem = state, problem
