"""Compares two reports: `make bench COMPARE=old.json` lists what got worse beyond the noise of both."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from benchmarks.figures import Row, Spread, shown
from benchmarks.report import Report

MIN_CHANGE: Final = 0.05
"""A smaller change is not a regression, even with little noise: processes differ by a few percent."""

MIN_ROUNDS: Final = 3
"""The noise of fewer rounds is unknown."""


@frozen
class Regression:
    """A row whose median got worse by more than both interquartile ranges."""

    work: str
    peer: str
    before: float
    after: float

    def __str__(self) -> str:
        return f"WORSE {self.work}, against {self.peer}: {shown(self.before)} -> {shown(self.after)}"


@frozen
class Comparison:
    """The regressions since an earlier run, among the rows that were judged.

    A row is judged by its ratio, which depends little on the machine: rows without a peer are not judged.
    """

    measured: str
    compared: int
    regressions: list[Regression]

    def __str__(self) -> str:
        head = f"compared with {self.measured}: {self.compared} rows, {len(self.regressions)} got worse"
        return "\n".join([head, *map(str, self.regressions)])


def compare(before: Report, after: Report) -> Comparison:
    """Return the regressions, in the order of the later report."""
    earlier = {row.key: row for row in before.rows}
    pairs = [(earlier[row.key], row) for row in after.rows if row.key in earlier]
    judged = [(old, new) for old, new in pairs if is_judged(old) and is_judged(new)]
    found = [regression(old, new) for old, new in judged]
    return Comparison(before.measured, len(judged), [one for one in found if one is not None])


def is_judged(row: Row) -> bool:
    return bool(row.peer) and row.spread is not None and row.spread.rounds >= MIN_ROUNDS


def regression(old: Row, new: Row) -> Regression | None:
    """Return how a row got worse; None if it did not, or not beyond the noise."""
    assert old.spread is not None
    assert new.spread is not None
    worse = old.spread.median - new.spread.median if new.more_is_better else new.spread.median - old.spread.median
    if worse <= noise(old.spread, new.spread):
        return None
    return Regression(new.work, new.peer, old.spread.median, new.spread.median)


def noise(old: Spread, new: Spread) -> float:
    """Return the largest difference of medians that counts as noise."""
    return max(old.width, new.width, MIN_CHANGE * abs(old.median))
