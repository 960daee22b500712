"""Made-up rows, groups and reports, for the tests of the benchmark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.figures import Row, Spread
from benchmarks.report import Group, Measured, Report

RATIO: Final = "MADE_UP_RATIO"
"""The environment variable that names the ratio of a row."""

TITLE: Final = "Made up"
ABOUT: Final = "Nothing is measured."


def groups(*, quick: bool) -> dict[str, Group]:
    ratio = float(os.environ.get(RATIO, "1"))
    return {"one": lambda: [row(ratios=(ratio, ratio, ratio))], "failing": failing, "dying": dying, "endless": endless}


def failing() -> Iterator[Row]:
    yield row("before the error")
    raise ValueError("the peer is broken")


def dying() -> Iterator[Row]:
    yield row("before the end")
    os._exit(3)


def endless() -> Iterator[Row]:
    yield row(str(os.getpid()))
    signal.pause()


def row(
    work: str = "work", peer: str = "peer", *, ratios: tuple[float, float, float] = (0.9, 1.0, 1.1), **more: Any
) -> Row:
    low, middle, high = ratios
    return Row(
        work,
        **{"unit": "ms", "peer": peer, "ours": middle, "theirs": 1.0, **more, "spread": Spread(middle, low, high, 9)},
    )


def reported(*rows: Row) -> Report:
    return Report(measured="2026-01-02", groups={"group": Measured(rows=list(rows))})
