"""docs/performance.md, docs/benchmarks.md and the charts are generated from the report of the benchmark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from tests.benchmarks import page
from tests.benchmarks.chart import svg
from tests.benchmarks.figures import Bound, Goal, Row, alone, not_measured
from tests.benchmarks.made_up import reported, row
from tests.benchmarks.report import Report, table

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("name", "content"), page.pages(Report.load(page.SOURCE)).items())
def test_a_generated_file_is_that_of_the_report(name: str, content: str):
    assert (page.DOCS / name).read_text() == content, "run: python -m tests.benchmarks.page"


def test_no_figure_is_typed_by_hand():
    for prose in (page.HEAD, page.RATIOS, page.APPENDIX):
        assert not re.search(r"\d", re.sub("QUICK=1|RESUME=1", "", prose))


def test_the_table_has_the_verdict_on_each_goal_and_the_rows_that_were_not_measured():
    missing = not_measured(Row("absent", "/s", "nginx"), "nginx is not installed")
    times = [alone("path: p50", "ms", [1.0, 2.0, 3.0]), alone("path: p99", "ms", [4.0])]
    rows = [row("a", goal=Goal(Bound.AT_MOST, 0.5)), *times, row("a", "other"), missing]
    assert table(rows).splitlines()[2:] == [
        "|a|1 ms|peer|1|1|0.9–1.1|≤ 0.5, missed|",
        "|||other|1|1|0.9–1.1||",
        "|path: p50|2 ms||||1.5–2.5||",
        "|… p99|4 ms||||||",
        "|absent|not measured: nginx is not installed|nginx|||||",
    ]


def test_a_chart_has_the_rows_of_its_peers_within_the_drawing():
    rows = [
        row("a < b", "msgspec", ratios=(90, 100, 110), headline=True),
        row("a < b", "pydantic"),
        row("a < b", "json.loads"),
        row("another", "msgspec"),
    ]
    root = ET.fromstring(svg(page.ALTERNATIVES, rows))
    assert root.findtext(f"{SVG}desc") == "a < b, against msgspec: 0.01; a < b, against pydantic: 1"
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
    width = float(root.get("width") or 0)
    assert all(0 <= float(one.get(name, "0")) <= width for one in root.iter() for name in ("x", "x1", "x2"))


def test_every_peer_of_a_chart_is_measured():
    peers = {one.peer for one in Report.load(page.SOURCE).rows}
    assert page.ALTERNATIVES.peers | page.BOUNDS.peers <= peers
    assert not page.ALTERNATIVES.peers & page.BOUNDS.peers


def test_the_chart_of_shares_ends_at_the_bound():
    root = ET.fromstring(svg(page.BOUNDS, reported(row(peer="json.loads", headline=True, ratios=(2, 4, 8))).rows))
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert {"0", "1", "0.25"} <= {*texts}
