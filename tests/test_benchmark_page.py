"""docs/performance.md and its chart: generated from a report, without figures that are typed by hand."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from tests.benchmarks import chart, page
from tests.benchmarks.compare import compare
from tests.benchmarks.figures import Bound, Goal, Row, alone, not_measured
from tests.benchmarks.made_up import reported, row
from tests.benchmarks.report import Measured, Part, Report, State


@pytest.fixture
def report() -> Report:
    made_up = Report(True, "2026-01-02", {"Python": "3"}, {"part": Part("Part <one>", "About it.")})
    made_up.groups["part.group"] = Measured(
        State.COMPLETE,
        [
            row("a < b", goal=Goal(Bound.AT_MOST, 2), headline=True),
            row("noisy", goal=Goal(Bound.AT_MOST, 1)),
            row("missed", goal=Goal(Bound.AT_MOST, 0.5)),
            row("slow", ratios=(90, 100, 110), headline=True),
            row("large", unit="MiB", headline=True),
            alone("alone", "ms", [1.0, 2.0, 3.0], at_most=1),
            not_measured(Row("absent", "/s", "nginx", goal=Goal(Bound.AT_LEAST, 1)), "nginx is not installed"),
        ],
    )
    return made_up


def test_the_page_in_the_tree_is_the_one_that_its_report_generates():
    report = Report.load(page.SOURCE)
    assert page.PAGE.read_text() == page.page(report), "run: python -m tests.benchmarks.page"
    assert page.CHART.read_text() == chart.svg(report.rows), "run: python -m tests.benchmarks.page"


def test_no_figure_of_the_page_is_typed_by_hand():
    for prose in (page.HEAD, page.SUMMARY, page.BIAS, page.METHOD, page.NO_COMPARISON):
        assert not re.search(r"\d", prose.replace("QUICK=1", "").replace("RESUME=1", ""))


def test_the_page_lists_what_was_missed_noisy_failed_and_not_measured(report: Report):
    report.groups["part.broken"] = Measured(State.FAILED, error="RuntimeError: broken")
    missed = page.page(report).partition("## What was not reached")[2].partition("## What got worse")[0]
    assert [line for line in missed.splitlines() if line] == [
        "Goals missed: 2.",
        "- missed, against peer: 1 (0.9 to 1.1); the goal is at most 0.5",
        "- alone: 2 ms (1.5 to 2.5); the goal is at most 1 ms",
        "Goals noisy: 1.",
        "- noisy, against peer: 1 (0.9 to 1.1); the goal is at most 1",
        "Not measured: 1.",
        "- absent, against nginx: not measured: nginx is not installed",
        "- The group part.broken failed: `RuntimeError: broken`",
    ]


def test_the_page_lists_what_got_worse(report: Report):
    assert page.NO_COMPARISON in page.page(report)
    report.comparison = compare(reported(row("slow", ratios=(1, 1, 1))), report)
    assert page.page(report).endswith(
        "| work | against | before | after |\n|---|---|---|---|\n| slow | peer | 1 | 100 |\n"
    )


def test_the_summary_has_one_line_for_each_part(report: Report):
    report.groups["part.more"] = Measured(
        State.COMPLETE, [row("a < b", "other", headline=True), alone("path", "ms", [5.0], headline=True)]
    )
    assert list(page.summary(report)) == [
        (
            "9 rows against 3 peers, measured on 2026-01-02. Goals: 1 reached, 2 missed, 1 noisy, 1 not measured. "
            "Peers failed and were retried 0 times."
        ),
        "**Part <one>**: a < b: 1 × peer, 1 × other; slow: 0.01 × peer; large: 1 × the size of peer; path: 5 ms.",
    ]


def test_the_chart_is_accessible_and_follows_light_and_dark(report: Report):
    root = ET.fromstring(chart.svg(report.rows))
    name = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    labels = {one.get("id", ""): one.text for one in root if one.get("id")}
    assert root.get("aria-labelledby") == " ".join(labels)
    assert labels["description"] == "a < b, against peer: 1; slow, against peer: 0.01"
    style = root.find(f"{name}style")
    assert style is not None
    assert "prefers-color-scheme: dark" in (style.text or "")


def test_each_bar_of_the_chart_has_its_label_and_value_within_the_drawing(report: Report):
    root = ET.fromstring(chart.svg(report.rows))
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "slow", "against peer", "0.01"} <= {*texts}
    width = float(root.get("width") or 0)
    for one in root.iter():
        for name in ("x", "x1", "x2"):
            assert 0 <= float(one.get(name, "0")) <= width


def test_a_chart_without_rows_is_drawn():
    ET.fromstring(chart.svg([]))
