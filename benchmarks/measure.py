"""How the benchmark measures: contenders take turns in short rounds, and ratios are the medians of single rounds."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, TypeAlias

from attrs import frozen

Clock: TypeAlias = Callable[[], float]

Rounds: TypeAlias = Mapping[str, Sequence[float]]
"""The time or the rate of each contender in each round."""

ROOT: Final = Path(__file__).resolve().parents[1]

MIN_ROUND_SECONDS: Final = 0.005
"""Shorter rounds measure the clock, and caches filled by the previous contender."""

MAX_ROUNDS: Final = 401

HEADINGS: Final = ("work", "ours", "peer", "theirs", "ratio", "quartiles")


@frozen
class Row:
    """One line of the report: ours against a peer in the same rounds, or ours alone.

    Args:
        work: What is done.
        unit: The unit of `ours` and `theirs`.
        ours: The median of ours; None if the row was not measured.
        peer: What ours is compared with; empty if there is no peer.
        theirs: The median of the peer.
        ratio: The median of the ratios of ours to theirs in single rounds.
        quartiles: The quartiles of these ratios; without a peer, of our figures.
        note: Why the row was not measured.
    """

    work: str
    unit: str
    ours: float | None = None
    peer: str = ""
    theirs: float | None = None
    ratio: float | None = None
    quartiles: tuple[float, float] | None = None
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the columns of the table."""
        return (
            self.work,
            self.note if self.ours is None else f"{shown(self.ours)} {self.unit}",
            self.peer,
            "" if self.theirs is None else shown(self.theirs),
            "" if self.ratio is None else shown(self.ratio),
            "" if self.quartiles is None else "–".join(map(shown, self.quartiles)),
        )


Group: TypeAlias = Callable[[], Iterable[Row]]
"""Measures rows that belong together, such as those of one interleaved run."""


def table(rows: Iterable[Row]) -> str:
    """Return the rows as a Markdown table."""
    return "\n".join(f"|{'|'.join(line)}|" for line in (HEADINGS, ["---"] * len(HEADINGS), *(r.cells() for r in rows)))


def shown(number: float) -> str:
    """Return a number with three significant digits, and no exponent."""
    if abs(number) >= 999.5:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) >= 0.001 or not number else f"{number:.6f}".rstrip("0")


def compared(work: str, unit: str, rounds: Rounds, ours: str, peer: str, *, scale: float = 1) -> Row:
    """Return the row of ours against a peer."""
    ratios = [one / other for one, other in zip(rounds[ours], rounds[peer], strict=True)]
    figures = median(rounds[ours]) * scale, peer, median(rounds[peer]) * scale
    return Row(work, unit, *figures, median(ratios), quartiles(ratios))


def alone(work: str, unit: str, values: Sequence[float], *, scale: float = 1) -> Row:
    """Return a row of ours without a peer."""
    scaled = [value * scale for value in values]
    return Row(work, unit, median(scaled), quartiles=quartiles(scaled))


def quartiles(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the lower and the upper quartile; None of one value."""
    if len(values) < 2:
        return None
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def percentile(values: Iterable[float], percent: int) -> float:
    """Return a percentile that lies within the values."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


@frozen
class Prepared:
    """Work on a value that is prepared before each call, outside the measured time."""

    prepare: Callable[[], Any]
    work: Callable[[Any], Any]

    def seconds(self, times: int, clock: Clock) -> float:
        """Return the seconds of so many calls."""
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
        """Return the seconds of so many calls."""
        work = self.work
        begun = clock()
        for _ in range(times):
            work()
        return clock() - begun


def interleaved(
    contenders: Mapping[str, Callable[[], Any] | Prepared],
    *,
    quick: bool,
    clock: Clock = time.thread_time,
    per: int = 1,
) -> dict[str, list[float]]:
    """Return the seconds that each contender needs for one call, in each of the rounds in which they take turns.

    Rounds are short, so other load slows adjacent rounds alike and hardly changes ratios. By default the seconds are
    processor time of this thread, which excludes other programs; work that waits needs `time.perf_counter`. `per` is
    the number of items that each call works on; the seconds are those of one item.
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
                seconds[name].append(work.seconds(times[name], clock) / times[name] / per)
    finally:
        gc.unfreeze()
    return seconds


def calls_per_round(work: Plain | Prepared, clock: Clock) -> int:
    """Return how many calls fill the shortest round; the first one warms up."""
    work.seconds(1, clock)
    return max(1, math.ceil(MIN_ROUND_SECONDS / max(work.seconds(1, clock), 1e-9)))
