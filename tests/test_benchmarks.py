"""The runner of `make bench`: a failing part does not lose the rows of other parts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks import runner
from tests.benchmarks.distributed import MAX_RETRIES, Joined, until_not_empty
from tests.benchmarks.figures import Row
from tests.benchmarks.runner import Report

ROOT = Path(__file__).resolve().parents[1]


def row(work: str) -> Row:
    return Row(work, 1.0, "ms", "")


def failing() -> Iterator[Row]:
    yield row("before the error")
    raise RuntimeError("the peer is broken")


def saved(path: Path) -> tuple[list[str], dict[str, str]]:
    content = json.loads(path.read_text())
    return [one["work"] for one in content["rows"]], content["failures"]


def test_rows_are_saved_although_a_part_fails(tmp_path: Path):
    output = tmp_path / "bench.json"
    report = Report()
    parts = {"first": lambda: [row("one")], "second": failing, "third": lambda: [row("three")]}
    runner.run(parts, report, output)
    error = "RuntimeError: the peer is broken"
    assert saved(output) == (["one", "before the error", "three"], {"second": error})
    assert report.text().splitlines()[-1] == f"FAILED second: {error}"


def test_a_part_that_cannot_be_imported_does_not_stop_the_others(tmp_path: Path):
    output = tmp_path / "bench.json"
    script = """
import sys
from tests.benchmarks import __main__ as bench
bench.MODULES |= {"process": "no_such_module"}
bench.versions = dict
bench.MODULES |= {"fills": "figures"}
bench.import_module("tests.benchmarks.figures").rows = lambda quick: [bench.Row("one", 1.0, "ms", "")]
sys.exit(bench.main())
"""
    command = [sys.executable, "-c", script, "--only", "process", "fills", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    works, failures = saved(output)
    assert works == ["one"]
    assert failures == {"process": "ModuleNotFoundError: No module named 'tests.benchmarks.no_such_module'"}
    assert f"FAILED process: {failures['process']}" in done.stdout.splitlines()


def test_rows_are_saved_as_they_are_measured(tmp_path: Path):
    output = tmp_path / "bench.json"

    def part() -> Iterator[Row]:
        assert saved(output)[0] == []
        yield row("one")
        assert saved(output)[0] == ["one"]
        yield row("two")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run({"part": part}, Report(), output)
    assert saved(output)[0] == ["one", "two"]


def test_a_watch_that_reports_an_empty_bucket_is_retried_and_counted():
    empty, full = Joined(0.1, 1.0, 0), Joined(0.2, 2.0, 7)
    results = iter([empty, empty, full])
    assert until_not_empty(lambda: next(results)) == (full, 2)


def test_retries_of_the_watch_are_bounded():
    calls = []

    def measure() -> Joined:
        calls.append(1)
        return Joined(0.1, 1.0, 0)

    with pytest.raises(RuntimeError, match="as empty 6 times in a row"):
        until_not_empty(measure)
    assert len(calls) == MAX_RETRIES + 1
