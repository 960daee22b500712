"""`make bench` without its measurements: verdicts, noise, failing groups, resumed runs, and comparisons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from benchmarks import made_up
from benchmarks.compare import compare
from benchmarks.figures import (
    Bound,
    Goal,
    Row,
    Spread,
    Verdict,
    compared,
)
from benchmarks.made_up import reported, row
from benchmarks.report import Report, run
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[1]


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


# Running


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


# The command

MADE_UP = """
import sys
from benchmarks import __main__ as bench
bench.PARTS.clear()
bench.PARTS.update(made_up="made_up", missing="no_such_module")
bench.versions = dict
sys.exit(bench.main())
"""


def bench(*arguments: object, ratio: float = 1) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MADE_UP, *map(str, arguments)]
    environment = os.environ | {made_up.RATIO: str(ratio)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_groups_and_parts_fail_alone(tmp_path: Path):
    output = tmp_path / "bench.json"
    done = bench("--only", "made_up.one", "made_up.failing", "made_up.dying", "missing", "--output", output)
    assert done.returncode == 1
    assert works(output) == ["work", "before the error", "before the end"]
    failures = {
        "made_up.failing": "ValueError: the peer is broken",
        "made_up.dying": "the process of the group ended with 3",
        "missing": "ModuleNotFoundError: No module named 'benchmarks.no_such_module'",
    }
    assert Report.load(output).failures == failures
    assert f"FAILED missing: {failures['missing']}" in done.stdout.splitlines()


def test_a_run_that_is_terminated_ends_the_process_of_its_group(tmp_path: Path):
    output = tmp_path / "bench.json"
    command = [sys.executable, "-c", MADE_UP, "--only", "made_up.endless", "--output", str(output)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        eventually(lambda: output.exists() and works(output))
        (pid,) = works(output)
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_a_run_that_got_worse_exits_with_1(tmp_path: Path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert bench("--only", "made_up.one", "--output", old).returncode == 0
    assert bench("--only", "made_up.one", "--output", new, "--compare", old, ratio=1.04).returncode == 0
    worse = bench("--only", "made_up.one", "--output", new, "--compare", old, ratio=1.2)
    assert worse.returncode == 1
    assert worse.stdout.splitlines()[-1] == "WORSE work, against peer: 1 -> 1.2"


# Comparing


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
