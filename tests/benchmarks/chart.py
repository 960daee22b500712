"""Draws the headline ratios as an SVG that follows the light or dark scheme of the reader."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from tests.benchmarks.figures import Row, Spread, shown

SPEEDS: Final = frozenset({"/s", "s", "ms", "µs"})
"""The units of rows about speed; other rows are about size."""

ROW_HEIGHT: Final = 40
PLOT_WIDTH: Final = 330
VALUE_WIDTH: Final = 70
TOP: Final = 56
BOTTOM: Final = 20
CHARACTER_WIDTH: Final = 7.8
"""The maximum width of labels; fonts differ."""

STYLE: Final = """\
  svg { color-scheme: light dark; }
  text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
  .page { fill: #ffffff; }
  .title { font-size: 16px; font-weight: 600; }
  .muted { fill: #59636e; font-size: 12px; }
  .grid { stroke: #d1d9e0; }
  .equal { stroke: #59636e; stroke-width: 2; }
  .faster { fill: #0969da; }
  .slower { fill: #bc4c00; }
  .quartiles { stroke: #1f2328; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .page { fill: #0d1117; }
    .muted { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .equal { stroke: #9198a1; }
    .faster { fill: #4493f8; }
    .slower { fill: #db6d28; }
    .quartiles { stroke: #f0f6fc; }
  }
"""

TITLE: Final = "How many times as fast as the peer"


def speed(row: Row) -> Spread | None:
    """Return the speed in multiples of the peer's speed; None for a row that is not about speed."""
    if row.spread is None or not row.peer or row.unit not in SPEEDS:
        return None
    if row.more_is_better:
        return row.spread
    return Spread(1 / row.spread.median, 1 / row.spread.high, 1 / row.spread.low, row.spread.rounds)


def charted(rows: Iterable[Row]) -> list[tuple[Row, Spread]]:
    """Return the rows of the chart with their speeds."""
    found = [(row, speed(row)) for row in rows if row.headline]
    return [(row, one) for row, one in found if one is not None and one.low > 0]


def description(rows: Sequence[tuple[Row, Spread]]) -> str:
    """Return the description of the chart for screen readers."""
    return "; ".join(f"{row.work}, against {row.peer}: {shown(one.median)}" for row, one in rows)


def ticks(rows: Sequence[tuple[Row, Spread]]) -> list[float]:
    """Return the powers of ten, with their halves and fifths, that enclose all speeds and 1."""
    lowest = min([1.0, *(one.low for _, one in rows)])
    highest = max([1.0, *(one.high for _, one in rows)])
    decades = range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    every = [step * 10.0**decade for decade in decades for step in ((1, 2, 5) if len(decades) < 4 else (1,))]
    first = max([tick for tick in every if tick <= lowest], default=every[0])
    last = min([tick for tick in every if tick >= highest], default=every[-1])
    return [tick for tick in every if first <= tick <= last]


def svg(all_rows: Iterable[Row]) -> str:
    """Return the chart: one bar for each headline row, from 1 to its ratio, on a logarithmic axis."""
    rows = charted(all_rows)
    marks = ticks(rows)
    left = 24 + CHARACTER_WIDTH * max([len(TITLE), *(len(row.work) for row, _ in rows)])
    width, height = left + PLOT_WIDTH + VALUE_WIDTH, TOP + ROW_HEIGHT * len(rows) + BOTTOM
    low, high = math.log(marks[0]), math.log(marks[-1])

    def x(value: float) -> float:
        return left + PLOT_WIDTH * (math.log(value) - low) / ((high - low) or 1)

    size = f'viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
        f'<title id="title">{TITLE}</title>',
        f'<desc id="description">{escape(description(rows))}</desc>',
        f"<style>\n{STYLE}</style>",
        f'<rect class="page" width="{width:.0f}" height="{height}"/>',
        f'<text class="title" x="12" y="22">{TITLE}</text>',
        '<text class="muted" x="12" y="41">bar: median, to the right if we are faster; line: quartiles</text>',
    ]
    for mark in marks:
        kind = "equal" if mark == 1 else "grid"
        lines.append(
            f'<line class="{kind}" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{TOP - 8}" y2="{height - BOTTOM}"/>'
        )
        lines.append(f'<text class="muted" x="{x(mark):.1f}" y="{TOP - 15}" text-anchor="middle">{shown(mark)}</text>')
    for number, (row, one) in enumerate(rows):
        y = TOP + ROW_HEIGHT * number
        start, end = sorted((x(1), x(one.median)))
        kind = "faster" if one.median >= 1 else "slower"
        value = max(x(one.high), x(1)) + 8
        lines += [
            f'<text x="12" y="{y + 15}">{escape(row.work)}</text>',
            f'<text class="muted" x="12" y="{y + 31}">against {escape(row.peer)}</text>',
            f'<rect class="{kind}" x="{start:.1f}" y="{y + 6}" width="{max(end - start, 1):.1f}" height="20" rx="2"/>',
            f'<line class="quartiles" x1="{x(one.low):.1f}" x2="{x(one.high):.1f}" y1="{y + 16}" y2="{y + 16}"/>',
            f'<text x="{value:.1f}" y="{y + 21}">{shown(one.median)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
