"""Draws figures and ratios as SVG that follow the light or dark scheme of the reader."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from attrs import frozen

from benchmarks.figures import Row, Spread, shown

SPEEDS: Final = frozenset({"/s", "s", "ms", "µs"})
"""The units of rows about speed; other rows are about size."""

ROW_HEIGHT: Final = 40
PLOT_WIDTH: Final = 330
VALUE_WIDTH: Final = 70
TOP: Final = 56
BOTTOM: Final = 20
GROUP_HEIGHT: Final = 40
FIGURE_HEIGHT: Final = 24
FIGURE_WIDTH: Final = 230
CHARACTER_WIDTH: Final = 7.8
"""The maximum width of labels; fonts differ."""

STYLE: Final = """\
  svg { color-scheme: light dark; }
  text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
  .page { fill: #ffffff; }
  .title { font-size: 16px; font-weight: 600; }
  .group { font-weight: 600; }
  .muted { fill: #59636e; font-size: 12px; }
  .grid { stroke: #d1d9e0; }
  .bar { fill: #0969da; }
  .below { fill: #bc4c00; }
  .quartiles { stroke: #1f2328; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .page { fill: #0d1117; }
    .muted { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .bar { fill: #4493f8; }
    .below { fill: #db6d28; }
    .quartiles { stroke: #f0f6fc; }
  }
"""


@frozen
class Chart:
    """What a chart compares with.

    Args:
        title: The title of the drawing.
        note: How to read a bar.
        peers: The peers of its rows.
        is_share: Bars start at 0 on a linear axis up to 1. Otherwise they start at 1 on a logarithmic axis.
    """

    title: str
    note: str
    peers: frozenset[str]
    is_share: bool

    def bars(self, rows: Iterable[Row]) -> list[tuple[Row, Spread]]:
        """Return the rows of the chart, with the speed as a multiple of the peer's speed."""
        rows = list(rows)
        works = {row.work for row in rows if row.headline}
        chosen = [row for row in rows if row.work in works and row.peer in self.peers and row.unit in SPEEDS]
        return [(row, speed(row.spread, row)) for row in chosen if row.spread is not None]

    def marks(self, bars: Sequence[tuple[Row, Spread]]) -> list[float]:
        """Return the marks of the axis, which enclose all speeds."""
        if self.is_share:
            fifths = max(5, math.ceil(5 * max((one.high for _, one in bars), default=1)))
            return [fifth / 5 for fifth in range(fifths + 1)]
        lowest, highest = min(1.0, *(one.low for _, one in bars)), max(1.0, *(one.high for _, one in bars))
        return [10.0**power for power in range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)]


@frozen
class Figures:
    """Figures of one unit, with an axis of their own from 0 to the greatest.

    Args:
        title: What is measured, with the unit.
        works: The labels of the bars, in their order, each with its work.
    """

    title: str
    works: Mapping[str, str]

    def bars(self, rows: Iterable[Row]) -> list[tuple[str, Row, float]]:
        """Return the labels of the measured works, each with the first row of its work, and its median of ours."""
        found: dict[str, Row] = {}
        for row in rows:
            found.setdefault(row.work, row)
        named = [(label, found[work]) for label, work in self.works.items() if work in found]
        return [(label, row, row.ours) for label, row in named if row.ours is not None]


def speed(ratio: Spread, row: Row) -> Spread:
    """Return the ratio of speeds: the inverse of the ratio of times."""
    if row.more_is_better:
        return ratio
    return Spread(1 / ratio.median, 1 / ratio.high, 1 / ratio.low, ratio.rounds)


def svg(chart: Chart, rows: Iterable[Row]) -> str:
    """Return the drawing: one bar for each row, with its quartiles as a line."""
    bars = chart.bars(rows)
    marks = chart.marks(bars)
    left = 24 + CHARACTER_WIDTH * max(len(text) for text in (chart.title, *(row.work for row, _ in bars)))
    width, height = left + PLOT_WIDTH + VALUE_WIDTH, TOP + ROW_HEIGHT * len(bars) + BOTTOM

    def x(value: float) -> float:
        low, high, value = (one if chart.is_share else math.log(one) for one in (marks[0], marks[-1], value))
        return left + PLOT_WIDTH * (value - low) / (high - low)

    description = "; ".join(f"{row.work}, against {row.peer}: {shown(one.median)}" for row, one in bars)
    lines = head(chart.title, chart.note, description, width, height)
    for mark in marks:
        lines += [
            f'<line class="grid" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{TOP - 8}" y2="{height - BOTTOM}"/>',
            f'<text class="muted" x="{x(mark):.1f}" y="{TOP - 15}" text-anchor="middle">{shown(mark)}</text>',
        ]
    base = x(0 if chart.is_share else 1)
    for number, (row, one) in enumerate(bars):
        y = TOP + ROW_HEIGHT * number
        start, end = sorted((base, x(one.median)))
        kind = "bar" if chart.is_share or one.median >= 1 else "below"
        lines += [
            f'<text x="12" y="{y + 15}">{escape(row.work)}</text>',
            f'<text class="muted" x="12" y="{y + 31}">against {escape(row.peer)}</text>',
            f'<rect class="{kind}" x="{start:.1f}" y="{y + 6}" width="{max(end - start, 1):.1f}" height="20" rx="2"/>',
            f'<line class="quartiles" x1="{x(one.low):.1f}" x2="{x(one.high):.1f}" y1="{y + 16}" y2="{y + 16}"/>',
            f'<text x="{max(x(one.high), base) + 8:.1f}" y="{y + 21}">{shown(one.median)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def svg_of_figures(title: str, note: str, groups: Sequence[Figures], rows: Iterable[Row]) -> str:
    """Return the drawing of groups of figures: one bar for each work, with its figure and unit."""
    rows = list(rows)
    drawn = [(group, bars) for group in groups if (bars := group.bars(rows))]
    left = 24 + CHARACTER_WIDTH * max((len(label) for _, bars in drawn for label, *_ in bars), default=0)
    width = left + FIGURE_WIDTH + 2 * VALUE_WIDTH
    height = TOP + sum(GROUP_HEIGHT + FIGURE_HEIGHT * len(bars) for _, bars in drawn) + BOTTOM
    texts = [f"{label}: {shown(ours)} {row.unit}" for _, bars in drawn for label, row, ours in bars]
    lines = head(title, note, "; ".join(texts), width, height)
    y = TOP
    for group, bars in drawn:
        lines.append(f'<text class="group" x="12" y="{y + GROUP_HEIGHT - 12}">{group.title}</text>')
        y += GROUP_HEIGHT
        longest = max(ours for _, _, ours in bars)
        for label, row, ours in bars:
            end = FIGURE_WIDTH * ours / longest
            lines += [
                f'<text x="12" y="{y + 15}">{escape(label)}</text>',
                f'<rect class="bar" x="{left:.1f}" y="{y + 1}" width="{max(end, 1):.1f}" height="18" rx="2"/>',
                f'<text x="{left + end + 8:.1f}" y="{y + 15}">{shown(ours)} {row.unit}</text>',
            ]
            y += FIGURE_HEIGHT
    return "\n".join([*lines, "</svg>", ""])


def head(title: str, note: str, description: str, width: float, height: float) -> list[str]:
    """Return the first lines of a drawing."""
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
        f'<title id="title">{title}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        f"<style>\n{STYLE}</style>",
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="title" x="12" y="22">{title}</text>',
        f'<text class="muted" x="12" y="41">{note}</text>',
    ]
