"""How the benchmark measures and decides: interleaved rounds, medians, and the quartiles of single rounds."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from statistics import median, quantiles
from typing import Any, Final, TypeAlias, TypeVar

from attrs import evolve, frozen

T = TypeVar("T")

Clock: TypeAlias = Callable[[], float]

Rounds: TypeAlias = Mapping[str, Sequence[float]]
"""The time or the rate of each contender in each round."""

MIN_ROUND_SECONDS: Final = 0.005
"""Shorter rounds measure the clock, and caches filled by the previous contender."""

MAX_ROUNDS: Final = 401
MAX_RETRIES: Final = 5

MORE_IS_BETTER: Final = frozenset({"/s"})
"""The units in which more is better. In others less is better: times, sizes, shares."""


class Bound(Enum):
    """The side of its goal on which a figure must be."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


class Verdict(Enum):
    """Whether a row reaches its goal."""

    REACHED = "reached"
    MISSED = "missed"
    NOISY = "noisy"
    """The goal is between the quartiles of single rounds: neither reached nor missed."""


@frozen
class Goal:
    """The bound of a row: of its ratio if it has a peer, else of its figure."""

    bound: Bound
    value: float

    def __str__(self) -> str:
        sign = "≥" if self.bound is Bound.AT_LEAST else "≤"
        return f"{sign} {shown(self.value)}"


@frozen
class Spread:
    """The median and the quartiles of single rounds."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, middle, high = quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high, len(values))

    @property
    def width(self) -> float:
        """The interquartile range."""
        return self.high - self.low


@frozen
class Row:
    """One line of the report: ours against a peer in the same rounds, or ours alone.

    Args:
        work: What is done.
        unit: The unit of `ours` and `theirs`.
        peer: What ours is compared with; empty if there is no peer.
        ours: The median of ours; None if the row was not measured.
        theirs: The median of the peer.
        spread: The ratios of ours to theirs in single rounds; without a peer, our figures in single rounds.
        goal: The bound of the median of `spread`.
        faults: How often the peer failed and was retried.
        note: Why the row was not measured, or what qualifies it.
        headline: Whether docs/performance.md shows the work.
    """

    work: str
    unit: str
    peer: str = ""
    ours: float | None = None
    theirs: float | None = None
    spread: Spread | None = None
    goal: Goal | None = None
    faults: int = 0
    note: str = ""
    headline: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the row in every report."""
        return self.work, self.peer

    @property
    def is_measured(self) -> bool:
        return self.ours is not None

    @property
    def more_is_better(self) -> bool:
        return self.unit in MORE_IS_BETTER

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the goal, None without a goal or a figure."""
        if self.goal is None or self.spread is None:
            return None
        if self.spread.low < self.goal.value < self.spread.high:
            return Verdict.NOISY
        is_above = self.spread.median >= self.goal.value
        is_below = self.spread.median <= self.goal.value
        is_reached = is_above if self.goal.bound is Bound.AT_LEAST else is_below
        return Verdict.REACHED if is_reached else Verdict.MISSED


def shown(number: float) -> str:
    """Return a number with three significant digits, and no exponent."""
    if abs(number) >= 999.5:
        return f"{number:,.0f}"
    if number and abs(number) < 0.001:
        return f"{number:.3f}" if abs(number) >= 0.0005 else f"{number:.6f}".rstrip("0")
    return f"{number:.3g}"


def compared(
    work: str,
    unit: str,
    rounds: Rounds,
    ours: str,
    peer: str,
    *,
    scale: float = 1,
    at_least: float | None = None,
    at_most: float | None = None,
    headline: bool = False,
    faults: int = 0,
) -> Row:
    """Return the row of ours against a peer. The ratio is the median of the ratios of single rounds."""
    ratios = [one / other for one, other in zip(rounds[ours], rounds[peer], strict=True)]
    return Row(
        work,
        unit,
        peer,
        median(rounds[ours]) * scale,
        median(rounds[peer]) * scale,
        Spread.of(ratios),
        goal(at_least, at_most),
        faults,
        headline=headline,
    )


def alone(
    work: str,
    unit: str,
    values: Sequence[float],
    *,
    scale: float = 1,
    at_least: float | None = None,
    at_most: float | None = None,
    headline: bool = False,
) -> Row:
    """Return a row of ours without a peer. A goal is in the unit of the row."""
    spread = Spread.of([value * scale for value in values])
    return Row(work, unit, ours=spread.median, spread=spread, goal=goal(at_least, at_most), headline=headline)


def not_measured(row: Row, reason: str) -> Row:
    """Return a row without figures, with the reason why it was not measured."""
    return evolve(row, note=f"not measured: {reason}")


def goal(at_least: float | None, at_most: float | None) -> Goal | None:
    if at_least is not None:
        return Goal(Bound.AT_LEAST, at_least)
    return None if at_most is None else Goal(Bound.AT_MOST, at_most)


@frozen
class Prepared:
    """Work on a value that is prepared before each call, outside the measured time."""

    prepare: Callable[[], Any]
    work: Callable[[Any], Any]

    def seconds(self, times: int, clock: Clock) -> float:
        total = 0.0
        for _ in range(times):
            value = self.prepare()
            begun = clock()
            self.work(value)
            total += clock() - begun
        return total


@frozen
class Plain:
    """Work without preparation."""

    work: Callable[[], Any]

    def seconds(self, times: int, clock: Clock) -> float:
        work = self.work
        begun = clock()
        for _ in range(times):
            work()
        return clock() - begun


Contenders: TypeAlias = Mapping[str, "Callable[[], Any] | Prepared"]


def interleaved(contenders: Contenders, *, quick: bool, clock: Clock = time.thread_time) -> dict[str, list[float]]:
    """Return the seconds that each contender needs for one call, in each of the rounds in which they take turns.

    The number of rounds is limited by the time for all contenders. Rounds are short, so other load slows adjacent
    rounds alike and hardly changes ratios. By default the seconds are processor time of this thread, which excludes
    other programs; work that waits needs `time.perf_counter`.
    """
    works = {name: work if isinstance(work, Prepared) else Plain(work) for name, work in contenders.items()}
    fewest, budget = (7, 0.4) if quick else (15, 2.0)
    # Freeze existing objects: otherwise every garbage collection traverses a million books.
    gc.collect()
    gc.freeze()
    try:
        times = {name: calls_per_round(work, clock) for name, work in works.items()}
        begun = time.perf_counter()
        for name, work in works.items():
            work.seconds(times[name], clock)
        once = time.perf_counter() - begun
        rounds = min(max(int(budget * len(works) / once), fewest), MAX_ROUNDS)
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                seconds[name].append(work.seconds(times[name], clock) / times[name])
    finally:
        gc.unfreeze()
    return seconds


def calls_per_round(work: Plain | Prepared, clock: Clock) -> int:
    """Return how many calls fill the shortest round; the first one warms up."""
    work.seconds(1, clock)
    return max(1, math.ceil(MIN_ROUND_SECONDS / max(work.seconds(1, clock), 1e-9)))


def divided(rounds: Rounds, by: int) -> dict[str, list[float]]:
    """Return the time of one of the `by` items that each call works on."""
    return {name: [one / by for one in seconds] for name, seconds in rounds.items()}


def retried(measure: Callable[[], T], is_fault: Callable[[T], bool], peer: str) -> tuple[T, int]:
    """Return the first result that is not a fault of the peer, and the number of faults before it.

    Raises:
        RuntimeError: all of the first measurement and `MAX_RETRIES` more were faults.
    """
    for faults in range(MAX_RETRIES + 1):
        result = measure()
        if not is_fault(result):
            return result, faults
    raise RuntimeError(f"{peer} failed {MAX_RETRIES + 1} times in a row")


def percentile(values: Iterable[float], percent: int) -> float:
    """Return a percentile that lies within the values."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]
