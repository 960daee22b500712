"""Writes docs/performance.md and its chart from a report: `python -m tests.benchmarks.page [docs/bench.json]`.

Every figure of the page comes from the report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.benchmarks import chart, compare
from tests.benchmarks.figures import Row, Verdict, shown
from tests.benchmarks.report import Report, cells, table

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
SOURCE: Final = DOCS / "bench.json"
PAGE: Final = DOCS / "performance.md"
CHART: Final = DOCS / "performance.svg"

HEAD: Final = """\
# Performance

(`make bench` writes this page and its chart from [bench.json](../docs/bench.json).)
"""

SUMMARY: Final = """
## Summary

The factor before a peer is how many times as fast as the peer we are; below one, the peer is faster.

"""

BIAS: Final = """
## Read this with care

These figures come from the authors of one of the contenders, who chose what is measured and know their own library
better than the peers. Most peers are written as their documentation shows: a peer that caches encoded responses would
be as fast. The peers that send prebuilt bytes show that limit. On a small, virtual or shared machine the speed
changes within seconds. Ratios hold better than absolute figures, and the quartiles show how well. A client on another
machine has a network in between.

Some peers do less: msgspec, pydantic and `json.loads` check neither the order of levels nor the range of prices nor
repeated keys; sortedcontainers and order-book keep no earlier version; a dict has no order.
"""

METHOD: Final = """
## How it is measured

The contenders of a group take turns, in many short rounds. *Ours* and *theirs* are medians of all rounds. The *ratio*
is the median of the ratios of ours to theirs in single rounds, so that it can differ a little from the quotient of
the two medians; the *quartiles* are those of the same ratios, or of our figures where there is no peer. For requests
per second more is better, for times and sizes less is. A goal is a bound of the ratio, or of our figure if there is
no peer. A row is *noisy* if its goal lies between the quartiles: it is neither reached nor missed. What a contender
needs before the work is made outside the time that is measured, so that no cost is a difference of two measurements.

Each group has a process of its own, which has freed a large block of memory before it measures: as a process that has
run for a while, it keeps freed memory. Work within one process is measured in processor time, so that other programs
are not counted. Everything over HTTP, with a store or between processes is measured by the wall clock.

`make bench QUICK=1` has fewer rounds and smaller data. `make bench RESUME=1` keeps the groups that an interrupted run
completed. `make bench COMPARE=old.json` exits with an error if a row got worse beyond the noise. wrk, nginx and Go
are used if they are installed; a row that needs a missing one says so.
"""

NO_COMPARISON: Final = "This run was not compared with an earlier one (`make bench COMPARE=old.json`)."


def page(report: Report) -> str:
    """Return the page."""
    return "".join(
        [
            HEAD,
            f"\n![{chart.TITLE}. The tables below have the same ratios.]({CHART.name})\n",
            SUMMARY,
            *(f"- {line}\n" for line in summary(report)),
            BIAS,
            METHOD,
            f"\n{conditions(report)}\n",
            "\n## Figures\n",
            *tables(report),
            "\n## What was not reached\n\n",
            *not_reached(report),
            "\n## What got worse\n\n",
            *got_worse(report),
        ]
    )


def summary(report: Report) -> Iterator[str]:
    """Yield the counts, then a line for each part."""
    rows = list(report.rows)
    goals = [f"{len(report.with_verdict(verdict))} {verdict.value}" for verdict in Verdict]
    unmeasured = sum(1 for row in rows if row.goal and not row.is_measured)
    peers = len({row.peer for row in rows if row.peer})
    yield (
        f"{len(rows)} rows against {peers} peers, measured on {report.measured}. Goals: {', '.join(goals)}, "
        f"{unmeasured} not measured. Peers failed and were retried {report.faults} times."
    )
    for name, part in report.parts.items():
        headlines = [row for row in rows_of(report, name) if row.headline and row.is_measured]
        works = dict.fromkeys(row.work for row in headlines)
        said = [f"{work}: {', '.join(outcomes(row for row in headlines if row.work == work))}" for work in works]
        if said:
            yield f"**{part.title}**: {'; '.join(said)}."


def outcomes(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the results of headline rows of the same work: a factor and the peer, or a figure."""
    for row in rows:
        assert row.spread is not None
        speed = chart.speed(row)
        if speed is not None:
            yield f"{shown(speed.median)} × {row.peer}"
        elif row.peer:
            yield f"{shown(row.spread.median)} × the size of {row.peer}"
        else:
            yield f"{shown(row.spread.median)} {row.unit}"


def conditions(report: Report) -> str:
    mode = "`make bench QUICK=1`" if report.quick else "`make bench`"
    listed = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    took = sum(group.seconds for group in report.groups.values())
    return f"This run: {mode}, {took / 60:.0f} minutes, on {report.measured}. Versions: {listed}."


def rows_of(report: Report, part: str) -> list[Row]:
    return [row for name, group in report.groups.items() if name.partition(".")[0] == part for row in group.rows]


def tables(report: Report) -> Iterator[str]:
    """Yield a section for each part."""
    for name, part in report.parts.items():
        if rows := rows_of(report, name):
            yield f"\n### {part.title}\n\n{part.about.strip()}\n\n{table(rows)}\n"


def not_reached(report: Report) -> Iterator[str]:
    """Yield the missed goals, the noisy rows, and the rows that were not measured."""
    for verdict in (Verdict.MISSED, Verdict.NOISY):
        yield from listed(f"Goals {verdict.value}", report.with_verdict(verdict))
    yield from listed("Not measured", [row for row in report.rows if not row.is_measured])
    for name, error in report.failures.items():
        yield f"- The group {name} failed: `{error}`\n"


def listed(title: str, rows: Iterable[Row]) -> Iterator[str]:
    lines = [f"- {against(row)}: {outcome(row)}\n" for row in rows]
    yield f"{title}: {len(lines)}.\n\n"
    if lines:
        yield "".join([*lines, "\n"])


def against(row: Row) -> str:
    return f"{row.work}, against {row.peer}" if row.peer else row.work


def outcome(row: Row) -> str:
    if row.spread is None:
        return row.note
    *_, quartiles, goal, _ = cells(row)
    spread = f" ({quartiles})" if quartiles else ""
    return f"{shown(row.spread.median)}{'' if row.peer else f' {row.unit}'}{spread}; the goal is {goal}"


def got_worse(report: Report) -> Iterator[str]:
    """Yield the regressions since the run that this one was compared with."""
    if report.comparison is None:
        yield f"{NO_COMPARISON}\n"
        return
    found = report.comparison
    yield f"{compare.RULE}\n\n"
    yield (
        f"{found.compared} rows were compared with the run of {found.measured}; {len(found.regressions)} got worse.\n"
    )
    if found.regressions:
        yield "\n| work | against | before | after |\n|---|---|---|---|\n"
    for one in found.regressions:
        yield f"| {one.work} | {one.peer} | {shown(one.before)} | {shown(one.after)} |\n"


def write(report: Report) -> None:
    """Write the page and its chart."""
    PAGE.write_text(page(report), encoding="utf-8")
    CHART.write_text(chart.svg(report.rows), encoding="utf-8")


if __name__ == "__main__":
    write(Report.load(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE))
