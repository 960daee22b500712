"""`make bench` without its measurements: verdicts, noise, failing groups, resumed runs, comparisons, and the page."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from tests.benchmarks import chart, page
from tests.benchmarks.compare import compare, text
from tests.benchmarks.figures import (
    MAX_RETRIES,
    Bound,
    Goal,
    Prepared,
    Row,
    Spread,
    Verdict,
    alone,
    compared,
    interleaved,
    not_measured,
    percentile,
    retried,
    shown,
)
from tests.benchmarks.report import Group, Measured, Part, Report, State, run

ROOT = Path(__file__).resolve().parents[1]


def row(work: str = "work", peer: str = "peer", *, ratios: tuple[float, float, float] = (0.9, 1.0, 1.1), **more) -> Row:
    low, middle, high = ratios
    return Row(
        work,
        **{"unit": "ms", "peer": peer, "ours": middle, "theirs": 1.0, **more, "spread": Spread(middle, low, high, 9)},
    )


def failing() -> Iterator[Row]:
    yield row("before the error")
    raise RuntimeError("the peer is broken")


def works(path: Path) -> list[str]:
    return [one.work for one in Report.load(path).rows]


# Verdicts


def test_the_ratio_is_the_median_of_the_ratios_of_single_rounds():
    rounds = {"ours": [1.0, 20.0, 3.0], "theirs": [1.0, 10.0, 1.0]}
    one = compared("work", "ms", rounds, "ours", "theirs", scale=1000)
    assert (one.ours, one.theirs, one.spread) == (3000, 1000, Spread(2.0, 1.5, 2.5, 3))


@pytest.mark.parametrize(
    ("low", "high", "at_most", "at_least"),
    [
        (0.5, 0.9, Verdict.REACHED, Verdict.MISSED),
        (1.1, 1.5, Verdict.MISSED, Verdict.REACHED),
        (0.9, 1.1, Verdict.NOISY, Verdict.NOISY),
        (1.0, 1.0, Verdict.REACHED, Verdict.REACHED),
    ],
)
def test_a_row_is_noisy_if_its_goal_is_between_the_quartiles(low, high, at_most, at_least):
    one = row(ratios=(low, (low + high) / 2, high))
    assert evolve(one, goal=Goal(Bound.AT_MOST, 1)).verdict is at_most
    assert evolve(one, goal=Goal(Bound.AT_LEAST, 1)).verdict is at_least


def test_a_row_without_a_goal_or_a_figure_has_no_verdict():
    assert row().verdict is None
    missing = not_measured(Row("work", "ms", "nginx", goal=Goal(Bound.AT_MOST, 1)), "nginx is not installed")
    assert (missing.verdict, missing.is_measured) == (None, False)
    assert missing.note == "not measured: nginx is not installed"


def test_a_goal_of_a_row_without_a_peer_is_in_its_unit():
    assert alone("work", "ms", [0.001, 0.002, 0.003], scale=1000, at_most=2.5).verdict is Verdict.REACHED
    assert alone("work", "/s", [1.0, 2.0, 3.0], at_least=5).verdict is Verdict.MISSED


def test_contenders_take_turns():
    called: list[str] = []
    seconds = interleaved({name: partial(called.append, name) for name in "ab"}, quick=True)
    assert len(seconds["a"]) == len(seconds["b"])
    turns = re.sub(r"(.)\1+", r"\1", "".join(called))
    assert re.fullmatch(r"(ab){2,}", turns)


def test_what_is_prepared_is_passed_on_anew_for_each_call():
    values = iter(range(10**9))
    worked: list[int] = []
    interleaved({"one": Prepared(lambda: next(values), worked.append)}, quick=True)
    assert worked == list(range(len(worked)))


def test_a_percentile_is_within_the_values():
    assert percentile([1.0, 2.0, 3.0], 99) < 3
    assert percentile([1.0, 2.0, 3.0], 50) == 2


@pytest.mark.parametrize(
    ("number", "text"),
    [(123456.7, "123,457"), (999.9, "1,000"), (12.345, "12.3"), (0.01234, "0.0123"), (0.00004, "0.00004"), (0, "0")],
)
def test_numbers_have_three_significant_digits_and_no_exponent(number: float, text: str):
    assert shown(number) == text


# Faults of peers


def test_faults_of_a_peer_are_retried_and_counted():
    results = iter([0, 0, 7])
    assert retried(lambda: next(results), lambda found: found == 0, "the bare watch") == (7, 2)


def test_retries_are_bounded():
    calls: list[int] = []
    with pytest.raises(RuntimeError, match="the bare watch failed 6 times in a row"):
        retried(lambda: calls.append(1), lambda _: True, "the bare watch")
    assert len(calls) == MAX_RETRIES + 1


def test_the_report_counts_the_faults_of_peers():
    assert Report(groups={"a": Measured(rows=[row(faults=2), row()]), "b": Measured(rows=[row(faults=1)])}).faults == 3


# Running


def test_a_failing_group_loses_no_other_row(tmp_path: Path):
    output, report = tmp_path / "bench.json", Report()
    groups: Mapping[str, Group] = {"first": lambda: [row("one")], "second": failing, "third": lambda: [row("three")]}
    run(groups, report, output)
    error = "RuntimeError: the peer is broken"
    assert works(output) == ["one", "before the error", "three"]
    assert Report.load(output).failures == {"second": error}
    assert report.text().splitlines()[-1] == f"FAILED second: {error}"


def test_a_report_is_read_as_it_was_written(tmp_path: Path):
    report = Report(True, "2026-01-02", {"Python": "3"}, {"part": Part("title", "about")})
    report.groups["part.group"] = Measured(State.COMPLETE, [row(goal=Goal(Bound.AT_MOST, 2), faults=1, headline=True)])
    report.comparison = compare(report, report)
    report.save(tmp_path / "bench.json")
    assert Report.load(tmp_path / "bench.json") == report


def test_a_report_of_another_format_is_rejected(tmp_path: Path):
    (tmp_path / "bench.json").write_text('{"rows": []}')
    with pytest.raises(ValueError, match="must have format 2, got None"):
        Report.load(tmp_path / "bench.json")


def test_rows_are_saved_as_they_are_measured_and_a_resumed_run_keeps_complete_groups(tmp_path: Path):
    output = tmp_path / "bench.json"

    def interrupted() -> Iterator[Row]:
        assert works(output) == ["one"]
        yield row("two")
        assert works(output) == ["one", "two"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run({"first": lambda: [row("one")], "second": interrupted}, Report(), output)
    assert works(output) == ["one", "two"]

    def again() -> Iterator[Row]:
        raise AssertionError("measured again")

    report = Report()
    report.resume(output)
    run({"first": again, "second": lambda: [row("two"), row("three")]}, report, output)
    assert works(output) == ["one", "two", "three"]
    assert report.failures == {}


def test_a_resumed_run_measures_failed_and_unmeasured_groups_again(tmp_path: Path):
    output, report = tmp_path / "bench.json", Report()
    missing = not_measured(Row("work", "/s", "nginx"), "nginx is not installed")
    run({"failed": failing, "missing": lambda: [missing], "complete": lambda: [row()]}, report, output)
    resumed = Report()
    resumed.resume(output)
    assert list(resumed.groups) == ["complete"]


def test_a_run_of_other_versions_is_not_resumed(tmp_path: Path):
    Report(versions={"Python": "3.11"}).save(tmp_path / "bench.json")
    with pytest.raises(ValueError, match="cannot be resumed"):
        Report(versions={"Python": "3.12"}).resume(tmp_path / "bench.json")
    with pytest.raises(ValueError, match="cannot be resumed"):
        Report(quick=True, versions={"Python": "3.11"}).resume(tmp_path / "bench.json")


# The command

MADE_UP = """
import sys, types
from tests.benchmarks import __main__ as bench
from tests.benchmarks.figures import Row, Spread
made_up = types.ModuleType("tests.benchmarks.made_up")
made_up.TITLE, made_up.ABOUT = "Made up", "Nothing."
spread = Spread(RATIO, RATIO, RATIO, 9)
made_up.groups = lambda quick: {"one": lambda: [Row("work", "ms", "peer", RATIO, 1.0, spread)], "two": lambda: []}
sys.modules["tests.benchmarks.made_up"] = made_up
bench.PARTS.clear()
bench.PARTS.update(made_up="made_up", missing="no_such_module")
bench.versions = dict
sys.exit(bench.main())
"""


def bench(*arguments: object, ratio: float = 1.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MADE_UP.replace("RATIO", str(ratio)), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_part_that_cannot_be_imported_fails_alone(tmp_path: Path):
    output = tmp_path / "bench.json"
    done = bench("--output", output)
    assert done.returncode == 1
    assert works(output) == ["work"]
    failures = {"missing": "ModuleNotFoundError: No module named 'tests.benchmarks.no_such_module'"}
    assert Report.load(output).failures == failures
    assert f"FAILED missing: {failures['missing']}" in done.stdout.splitlines()


def test_a_run_that_got_worse_exits_with_1(tmp_path: Path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert bench("--only", "made_up", "--output", old).returncode == 0
    assert bench("--only", "made_up", "--output", new, "--compare", old, ratio=1.04).returncode == 0
    worse = bench("--only", "made_up", "--output", new, "--compare", old, ratio=1.2)
    assert worse.returncode == 1
    assert worse.stdout.splitlines()[-1] == "WORSE work, against peer: 1 -> 1.2"
    comparison = Report.load(new).comparison
    assert comparison
    assert [one.after for one in comparison.regressions] == [1.2]


def test_a_group_that_does_not_exist_is_an_error(tmp_path: Path):
    done = bench("--only", "made_up.three", "--output", tmp_path / "bench.json")
    assert done.returncode == 2
    assert "the groups are made_up.one, made_up.two; got made_up.three" in done.stderr


# Comparing


def reported(*rows: Row) -> Report:
    return Report(measured="2026-01-02", groups={"group": Measured(rows=list(rows))})


@pytest.mark.parametrize(
    ("unit", "before", "after", "is_worse"),
    [
        ("ms", (0.9, 1.0, 1.1), (1.2, 1.3, 1.4), True),
        ("ms", (0.9, 1.0, 1.1), (1.05, 1.15, 1.25), False),
        ("ms", (0.5, 1.0, 1.5), (1.7, 1.8, 1.9), False),
        ("ms", (0.9, 1.0, 1.1), (1.0, 1.8, 2.6), False),
        ("ms", (0.9, 1.0, 1.1), (0.4, 0.5, 0.6), False),
        ("ms", (1.0, 1.0, 1.0), (1.04, 1.04, 1.04), False),
        ("/s", (0.9, 1.0, 1.1), (0.4, 0.5, 0.6), True),
        ("/s", (0.9, 1.0, 1.1), (1.8, 1.9, 2.0), False),
    ],
    ids=[
        "worse",
        "within both ranges",
        "within the range of the earlier run",
        "within the range of the later run",
        "better",
        "less than 5 %",
        "fewer per second",
        "more per second",
    ],
)
def test_a_row_got_worse_if_its_median_moved_beyond_both_interquartile_ranges(unit, before, after, is_worse):
    found = compare(reported(row(unit=unit, ratios=before)), reported(row(unit=unit, ratios=after)))
    assert found.compared == 1
    assert [(one.before, one.after) for one in found.regressions] == ([(before[1], after[1])] if is_worse else [])


def test_only_rows_with_a_peer_and_known_noise_are_compared():
    def rows(ratio: float) -> Report:
        spread = Spread(ratio, ratio, ratio, 1)
        once = Row("measured once", "ms", "peer", ratio, 1.0, spread)
        without = alone("without a peer", "ms", [ratio] * 9)
        missing = not_measured(Row("missing", "ms", "nginx"), "nginx is not installed")
        return reported(once, without, missing, row(f"only at {ratio}"))

    assert compare(rows(1), rows(2)).compared == 0


def test_a_comparison_is_printed():
    found = compare(reported(row()), reported(row(ratios=(4.9, 5.0, 5.1))))
    assert text(found).splitlines() == [
        "compared with 2026-01-02: 1 rows, 1 got worse",
        "WORSE work, against peer: 1 -> 5",
    ]


# The page


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
    for prose in (page.HEAD, page.BIAS, page.METHOD, page.NO_COMPARISON):
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
    assert list(page.summary(report)) == [
        "Goals: 1 reached, 2 missed, 1 noisy, 1 not measured.",
        "7 rows against 2 peers, measured on 2026-01-02. Peers failed 0 times.",
        (
            "Part <one>: a < b: 1 ms, 1 times as fast as peer; slow: 100 ms, 0.01 times as fast as peer; "
            "large: 1 MiB, 1 times as large as peer."
        ),
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


def test_a_chart_of_no_rows_is_drawn():
    ET.fromstring(chart.svg([]))
