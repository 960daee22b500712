"""Writes docs/performance.md, its charts and docs/benchmarks.md: `python -m benchmarks.page`.

Every figure of the pages comes from docs/bench.json, the report of `make bench`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.chart import Chart, Figures, svg, svg_of_figures
from benchmarks.figures import shown
from benchmarks.report import Report, table

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
SOURCE: Final = DOCS / "bench.json"

FIGURES: Final = (
    Figures(
        "Requests per second, of one process on one core",
        {
            "an order book of 50 levels a side": "order book of 50 levels a side",
            "an order book of 500 levels a side": "order book of 500 levels a side",
            "the list of 10,000 pairs": "pair list of 10,000",
            "the list of 10,000 pairs, unchanged (304)": "pair list of 10,000, 304",
            "19 books to one list, 1,000 publishes a second": (
                "19 books to one pair list of 10,000, 1,000 publishes per second"
            ),
        },
    ),
    Figures(
        "Milliseconds from a publish until a polling client has the book",
        {
            "through a file, half of all": "publish to bytes received, file, 100 per second: p50",
            "through a file, 99 of 100": "publish to bytes received, file, 100 per second: p99",
            "through NATS, half of all": "publish to bytes received, NATS, 100 per second: p50",
            "through NATS, 99 of 100": "publish to bytes received, NATS, 100 per second: p99",
        },
    ),
    Figures(
        "Microseconds to publish one book",
        {
            "into 100 pairs": "publish one book into 100 pairs",
            "into 10,000 pairs": "publish one book into 10,000 pairs",
            "into 100,000 pairs": "publish one book into 100,000 pairs",
        },
    ),
)

ALTERNATIVES: Final = Chart(
    "How many times as fast as an alternative",
    "median and quartiles; above 1 we are faster",
    frozenset(
        {
            "FastAPI with pydantic", "Litestar with msgspec", "Starlette encoding", "Go encoding", "immutables.Map",
            "rpds.HashTrieMap", "copied dict", "json.dumps", "sortedcontainers", "order-book (C)", "msgspec (typed)",
            "msgspec", "pydantic", "a loop of Decimal", "accumulate in tuples",
        }
    ),
    is_share=False,
)  # fmt: skip

BOUNDS: Final = Chart(
    "Share of the bound that is reached",
    "median and quartiles; 1 is the bound",
    frozenset(
        {
            "uvicorn with prebuilt bytes", "nginx with a static file", "Go with prebuilt bytes", "json.loads",
            "its numbers alone", "append and fdatasync", "bare SQLite, synchronous FULL", "the bare client",
            "the bare watch",
        }
    ),
    is_share=True,
)  # fmt: skip

CHARTS: Final = {"alternatives.svg": ALTERNATIVES, "bounds.svg": BOUNDS}

HEAD: Final = """\
# Performance

`make bench` writes this page, and [all figures](benchmarks.md) with their spread, from docs/bench.json.

## In absolute figures
"""

FIRST_CHART: Final = """\
![Requests per second, milliseconds to a client, and the cost of many pairs.](figures.svg)
"""

RATIOS: Final = """\

## Compared with alternatives

What a program would use instead: other frameworks, encoders and data structures.

![How many times as fast as an alternative.](alternatives.svg)

Some alternatives do less. msgspec and pydantic check only types. sortedcontainers and order-book keep no earlier
version. A dict has no order. A framework that caches encoded responses would be as fast as we are.

## Compared with bounds

Each bound does only what no program can avoid: it sends prebuilt bytes, parses JSON without checking it, appends to a
file, or passes values through NATS without encoding or validation. Few programs with the same promises reach it.
`market-index serve` exceeds that of uvicorn, because it sends cached responses without uvicorn's task and its messages.

![Share of the bound that is reached.](bounds.svg)

## Read this with care

- The authors of one contender chose what is measured, and know their own library better than the others.
- Some goals were missed. [All figures](benchmarks.md) say which.
- Speed changes within seconds on a small, virtual or shared machine. Ratios hold better than absolute figures.
- Client, server and publisher share one machine. A client elsewhere has a network in between.

## Measure on your machine

`make bench QUICK=1` has fewer rounds and smaller data. `make bench RESUME=1` keeps the groups that an interrupted run
completed. `make bench COMPARE=old.json` fails if a row got worse beyond its spread. wrk, nginx and Go are used if they
are installed; a row that needs a missing one says so.
"""

APPENDIX: Final = """\
# Benchmarks

All figures behind [performance](performance.md). `make bench` writes this page from docs/bench.json.

The contenders of a group take turns in many short rounds. *Ours* and *theirs* are medians. *Ratio* is the median of
the ratios of ours to theirs in single rounds, with its quartiles; without a peer, *quartiles* are those of ours. Less
is better, except for figures per second. A *goal* bounds the ratio, or our figure without a peer. It is *noisy* if it
lies between the quartiles. Work within one process is measured in processor time, everything else by the wall clock.
An empty cell, or …, repeats the text above.

"""


def performance(report: Report) -> str:
    """Return the page for readers: absolute figures, then ratios as charts."""
    works: dict[str, str] = {}
    for row in report.rows:
        if row.headline and row.ours is not None:
            works.setdefault(row.work, f"{shown(row.ours)} {row.unit}")
    lines = [f"|{work}|{ours}|" for work, ours in works.items()]
    return "\n".join([HEAD, f"{conditions(report)}\n", FIRST_CHART, "|work|median|\n|---|---|", *lines, RATIOS])


def conditions(report: Report) -> str:
    system = ", ".join(f"{name} {report.versions.get(name, '?')}" for name in ("Python", "uvicorn", "SQLite"))
    machine = f"One run on {report.measured}, on a machine with {report.versions.get('cores', '?')} cores. {system}."
    return f"{machine} Requests per second are those of one server process on one core."


def benchmarks(report: Report) -> str:
    """Return the appendix: a section with a table for each part."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    failed = [f"\nThe group {name} failed: `{error}`\n" for name, error in report.failures.items()]
    head = f"{APPENDIX}This run: {report.measured}. {versions}. Retries of peers: {report.faults}.\n"
    return "".join([head, *failed, *(section(report, name) for name in report.parts)])


def section(report: Report, part: str) -> str:
    """Return the table of a part, and what it compares."""
    rows = [row for name, group in report.groups.items() if name.partition(".")[0] == part for row in group.rows]
    about = report.parts[part]
    return f"\n## {about.title}\n\n{about.about.strip()}\n\n{table(rows)}\n"


def pages(report: Report) -> dict[str, str]:
    """Return the generated files of docs/, by name."""
    drawn = {name: svg(chart, report.rows) for name, chart in CHARTS.items()}
    figures = svg_of_figures("What a user gets", "medians; each group has its own scale", FIGURES, report.rows)
    return {"performance.md": performance(report), "benchmarks.md": benchmarks(report), "figures.svg": figures, **drawn}


def write(report: Report) -> None:
    """Write the pages and the charts."""
    for name, content in pages(report).items():
        (DOCS / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Report.load(SOURCE))
