"""Draws docs/data-flow.svg and docs/packages.svg from texts and from the imports: `python -m tests.diagrams`.

A diagram is rows of boxes with arrows from upper to lower rows. The SVG follows the light or dark scheme of the reader.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from tests.architecture.graph import Graph, package_of
from tests.architecture.rules import SIBLINGS

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"

# All lengths are in pixels.
WIDTH: Final = 760
MARGIN: Final = 12
GAP: Final = 16
ROW_GAP: Final = 40
TOP: Final = 44
TITLE_HEIGHT: Final = 28
LINE_HEIGHT: Final = 16
CHARACTER_WIDTH: Final = 6.6
"""Of the details, generously: fonts differ."""

STYLE: Final = """\
  svg { color-scheme: light dark; }
  text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #59636e; }
  .page { fill: #ffffff; }
  .heading { font-size: 16px; font-weight: 600; fill: #1f2328; }
  .title { font-size: 13px; font-weight: 600; fill: #1f2328; text-anchor: middle; }
  .detail { text-anchor: middle; }
  .box { fill: #f6f8fa; stroke: #d1d9e0; }
  .arrow { stroke: #0969da; stroke-width: 1.5; }
  .head { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1; }
    .page { fill: #0d1117; }
    .heading, .title { fill: #f0f6fc; }
    .box { fill: #151b23; stroke: #3d444d; }
    .arrow { stroke: #4493f8; }
    .head { fill: #4493f8; }
  }
"""


@frozen
class Box:
    """A box, or a gap if it has no title; `share` is its width relative to the others of its row."""

    name: str
    title: str = ""
    details: tuple[str, ...] = ()
    share: int = 1


@frozen
class Diagram:
    """Rows of boxes, and arrows as pairs of the names of boxes."""

    title: str
    rows: Sequence[Sequence[Box]]
    arrows: Sequence[tuple[str, str]]


@frozen
class Placed:
    """A box at its place."""

    box: Box
    row: int
    left: float
    top: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    def covers(self, x: float) -> bool:
        return self.left < x < self.left + self.width


def parsed(text: str) -> Diagram:
    """Return the diagram of a text: a title, a paragraph for each row, and a paragraph of arrows."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    title, *rows, arrows = "\n".join(lines).split("\n\n")
    pairs = [tuple(line.split(" > ")) for line in arrows.splitlines()]
    return Diagram(title, [list(map(parsed_box, row.splitlines())) for row in rows], [(one, two) for one, two in pairs])


def parsed_box(line: str) -> Box:
    """Return the box of a line such as `name*2: title | detail`."""
    head, _, content = line.partition(": ")
    name, _, share = head.partition("*")
    title, *details = content.split(" | ")
    return Box(name, title, tuple(details), int(share or 1))


def of_packages(text: str, graph: Graph, folders: Mapping[str, Iterable[str]]) -> Diagram:
    """Return the diagram of the packages in the graph; the text has a title, and one line for each package."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    boxes = {box.name: box for box in map(parsed_box, lines[1:])}
    imports = {(package_of(one.importer), package_of(one.imported)) for one in graph}
    arrows = sorted((one, two) for one, two in imports if one != two and {one, two} <= boxes.keys())
    required: dict[str, list[str]] = {name: [] for name in boxes}
    for package, name in sorted(imports):
        if name and name not in boxes.keys() | sys.stdlib_module_names:
            required[package].append(name)
    rows: dict[int, list[Box]] = {}
    for name, box in sorted(boxes.items()):
        details = [box.title, f"Folders: {', '.join(folders[name])}", f"Imports: {', '.join(required[name])}"]
        full = evolve(box, title=name, details=tuple(detail for detail in details if not detail.endswith(": ")))
        rows.setdefault(height(name, arrows), []).append(full)
    return Diagram(lines[0], [rows[number] for number in sorted(rows, reverse=True)], arrows)


def height(package: str, arrows: Sequence[tuple[str, str]], above: tuple[str, ...] = ()) -> int:
    """Return the number of layers below a package; raise ValueError if the packages import each other in a cycle."""
    if package in above:
        raise ValueError(f"packages must not import each other in a cycle, got {' > '.join((*above, package))}")
    return max((height(two, arrows, (*above, package)) + 1 for one, two in arrows if one == package), default=0)


def placed(rows: Sequence[Sequence[Box]]) -> dict[str, Placed]:
    """Return the boxes at their places, by name; a row is as high as its highest box."""
    found: dict[str, Placed] = {}
    top = float(TOP)
    for number, row in enumerate(rows):
        share = (WIDTH - 2 * MARGIN + GAP) / sum(box.share for box in row)
        left = float(MARGIN)
        boxes = []
        for box in row:
            width = share * box.share - GAP
            details = [line for detail in box.details for line in textwrap.wrap(detail, int(width / CHARACTER_WIDTH))]
            boxes.append((evolve(box, details=tuple(details)), left, width))
            left += width + GAP
        tallest = TITLE_HEIGHT + LINE_HEIGHT * max(len(box.details) for box, _, _ in boxes) + 8
        found |= {box.name: Placed(box, number, left, top, width, tallest) for box, left, width in boxes if box.title}
        top += tallest + ROW_GAP
    return found


def ends(arrows: Sequence[tuple[str, str]], boxes: Mapping[str, Placed]) -> Iterator[tuple[float, float, float, float]]:
    """Yield the ends of each arrow; it is vertical if one of its boxes covers the end at the other box."""
    for source, target in arrows:
        upper, lower = boxes[source], boxes[target]
        if upper.row >= lower.row:
            raise ValueError(f"an arrow must lead to a lower row, got {source} > {target}")
        start = spread(upper, target, [boxes[two] for one, two in arrows if one == source])
        end = spread(lower, source, [boxes[one] for one, two in arrows if two == target])
        if lower.width < upper.width and upper.covers(end):
            start = end
        elif lower.covers(start):
            end = start
        yield start, upper.top + upper.height, end, lower.top - 6


def spread(box: Placed, other: str, others: Sequence[Placed]) -> float:
    """Return where the arrow to `other` touches the box: its arrows are spread over its width."""
    names = [one.box.name for one in sorted(others, key=lambda one: one.middle)]
    return box.left + box.width * (names.index(other) + 1) / (len(names) + 1)


def svg(diagram: Diagram) -> str:
    """Return the diagram as an SVG."""
    boxes = placed(diagram.rows)
    bottom = max(box.top + box.height for box in boxes.values()) + MARGIN
    size = f'viewBox="0 0 {WIDTH} {bottom:.0f}" width="{WIDTH}" height="{bottom:.0f}"'
    titles = {name: box.box.title for name, box in boxes.items()}
    description = "; ".join(f"{titles[one]} to {titles[two]}" for one, two in diagram.arrows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
        f'<title id="title">{escape(diagram.title)}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        f"<style>\n{STYLE}</style>",
        '<marker id="head" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="6" markerHeight="6" orient="auto">',
        '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker>',
        f'<rect class="page" width="{WIDTH}" height="{bottom:.0f}"/>',
        f'<text class="heading" x="{MARGIN}" y="24">{escape(diagram.title)}</text>',
    ]
    for x1, y1, x2, y2 in ends(diagram.arrows, boxes):
        line = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        lines.append(f'<line class="arrow" {line} marker-end="url(#head)"/>')
    for box in boxes.values():
        place = f'x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
        lines.append(f'<rect class="box" {place} rx="6"/>')
        lines.append(f'<text class="title" x="{box.middle:.1f}" y="{box.top + 20:.1f}">{escape(box.box.title)}</text>')
        for number, detail in enumerate(box.box.details):
            y = box.top + TITLE_HEIGHT + LINE_HEIGHT * number + 11
            lines.append(f'<text class="detail" x="{box.middle:.1f}" y="{y:.1f}">{escape(detail)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def drawings() -> dict[Path, str]:
    """Return the SVG of each diagram of the docs, by its path."""
    folders = {name: sorted(path.parent.name for path in (ROOT / name).glob("*/__init__.py")) for name in SIBLINGS}
    packages = of_packages((DOCS / "packages.txt").read_text(), Graph.of_files(ROOT, SIBLINGS), folders)
    return {
        DOCS / "data-flow.svg": svg(parsed((DOCS / "data-flow.txt").read_text())),
        DOCS / "packages.svg": svg(packages),
    }


if __name__ == "__main__":
    for path, drawing in drawings().items():
        path.write_text(drawing, encoding="utf-8")
