"""How the benchmark measures, and what it says of it: interleaved rounds, medians, and the spread of the ratios."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from attrs import asdict, evolve, frozen

Rounds = Mapping[str, Sequence[float]]
"""What each contender needed, or reached, in each round."""


@frozen
class Row:
    """One line of the table: ours against a peer in the same rounds."""

    work: str
    ours: float
    unit: str
    peer: str
    theirs: float | None = None
    ratio: float | None = None
    lowest: float | None = None
    highest: float | None = None
    goal: str = ""
    reached: bool | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.work,
            f"{shown(self.ours)} {self.unit}",
            self.peer,
            "" if self.theirs is None else shown(self.theirs),
            "" if self.ratio is None else shown(self.ratio),
            "" if self.lowest is None or self.highest is None else f"{shown(self.lowest)} to {shown(self.highest)}",
            self.goal,
            {True: "yes", False: "NO", None: ""}[self.reached],
        )


HEADINGS = ("work", "ours", "against", "theirs", "ratio", "spread", "goal", "reached")


def shown(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.3g}"


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
) -> Row:
    """Return ours over theirs, as medians; the spread is that of the rounds taken one by one."""
    ratios = [one / other for one, other in zip(rounds[ours], rounds[peer], strict=True)]
    one, other = median(rounds[ours]), median(rounds[peer])
    ratio = one / other
    return Row(
        work,
        one * scale,
        unit,
        peer,
        other * scale,
        ratio,
        min(ratios),
        max(ratios),
        f"at least {at_least:g}" if at_least is not None else f"at most {at_most:g}" if at_most is not None else "",
        None if at_least is None and at_most is None else ratio >= (at_least or 0) and ratio <= (at_most or ratio),
    )


def alone(work: str, unit: str, values: Sequence[float], *, scale: float = 1) -> Row:
    """Return ours alone, with no peer and no goal."""
    return Row(work, median(values) * scale, unit, "", lowest=min(values) * scale, highest=max(values) * scale)


def bounded(work: str, unit: str, values: Sequence[float], at_most: float, *, scale: float = 1) -> Row:
    """Return ours alone, against a bound."""
    row = alone(work, unit, values, scale=scale)
    return evolve(row, goal=f"at most {shown(at_most)} {unit}", reached=row.ours <= at_most)


def interleaved(contenders: Mapping[str, Callable[[], Any]], rounds: int, times: int = 1) -> dict[str, list[float]]:
    """Return the seconds that each contender needs for one call, in each of the rounds in which they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for work in contenders.values():
        work()
    # Freeze existing objects: otherwise every garbage collection traverses a million books.
    gc.collect()
    gc.freeze()
    try:
        for _ in range(rounds):
            for name, work in contenders.items():
                begun = time.perf_counter()
                for _ in range(times):
                    work()
                seconds[name].append((time.perf_counter() - begun) / times)
    finally:
        gc.unfreeze()
    return seconds


def table(rows: Iterable[Row]) -> str:
    """Return the rows as a Markdown table, its columns aligned."""
    lines = [HEADINGS, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def plain(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
