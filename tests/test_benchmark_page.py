"""docs/performance.md, docs/benchmarks.md and the charts are generated from the report of the benchmark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from benchmarks import page
from benchmarks.chart import Figures, svg, svg_of_figures
from benchmarks.figures import Bound, Goal, Row, alone, not_measured, shown
from benchmarks.made_up import reported, row
from benchmarks.report import Report, table

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("name", "content"), page.pages(Report.load(page.SOURCE)).items())
def test_a_generated_file_is_that_of_the_report(name: str, content: str):
    assert (page.DOCS / name).read_text() == content, "run: python -m benchmarks.page"


def test_no_figure_is_typed_by_hand():
    for prose in (page.HEAD, page.RATIOS, page.APPENDIX):
        assert not re.search(r"\d", re.sub("QUICK=1|RESUME=1", "", prose))


def test_the_figures_of_the_readme_are_those_of_the_report():
    readme = " ".join((page.DOCS.parent / "README.md").read_text().split())
    rows = {one.key: one for one in Report.load(page.SOURCE).rows}

    def ours(work: str) -> str:
        return next(shown(one.ours) for one in rows.values() if one.work == work and one.ours is not None)

    def theirs(work: str, peer: str) -> str:
        return shown(rows[work, peer].theirs or 0)

    book, path = "order book of 50 levels a side", "publish to bytes received, {}, 100 per second: p50"
    file, nats = ours(path.format("file")), ours(path.format("NATS"))
    assert f"a client through a file in {file} ms, and through NATS in {nats} ms (medians). " in readme
    floor = theirs(path.format("file"), "one poll of the client (floor)")
    assert f"The poll of the client is {floor} ms of that. " in readme
    assert f"serves {ours(book)} books of 50 levels a side per second. " in readme
    fastapi, bytes_ = theirs(book, "FastAPI with pydantic"), theirs(book, "uvicorn with prebuilt bytes")
    assert f"FastAPI with pydantic serves {fastapi}, and bytes that are prepared in advance {bytes_}." in readme


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


def test_a_chart_of_figures_has_the_measured_works_of_each_group_on_its_own_scale():
    groups = [
        Figures("Rates", {"many < most": "a", "few": "b", "none": "absent"}),
        Figures("Times", {"fast": "c"}),
        Figures("Not measured", {"none": "absent"}),
    ]
    missing = not_measured(Row("absent", "/s"), "not installed")
    rows = [alone("a", "/s", [400.0]), row("a", "msgspec"), alone("b", "/s", [100.0]), alone("c", "ms", [2.0]), missing]
    root = ET.fromstring(svg_of_figures("All", "note", groups, rows))
    assert root.findtext(f"{SVG}desc") == "many < most: 400 /s; few: 100 /s; fast: 2 ms"
    bars = [float(one.get("width") or 0) for one in root.iter(f"{SVG}rect") if one.get("class") == "bar"]
    assert bars == [bars[0], bars[0] / 4, bars[0]]
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert {"Rates", "Times", "few", "100 /s"} <= {*texts}
    assert "Not measured" not in texts
    assert svg_of_figures("All", "note", groups, [missing])


def test_every_figure_of_the_first_chart_is_measured():
    works = {one.work for one in Report.load(page.SOURCE).rows if one.is_measured}
    assert {work for group in page.FIGURES for work in group.works.values()} <= works


def test_every_peer_of_a_chart_is_measured():
    peers = {one.peer for one in Report.load(page.SOURCE).rows}
    assert page.ALTERNATIVES.peers | page.BOUNDS.peers <= peers
    assert not page.ALTERNATIVES.peers & page.BOUNDS.peers


def test_the_chart_of_shares_ends_at_the_bound():
    root = ET.fromstring(svg(page.BOUNDS, reported(row(peer="json.loads", headline=True, ratios=(2, 4, 8))).rows))
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert {"0", "1", "0.25"} <= {*texts}
