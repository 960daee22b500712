"""`make bench` without its measurements: verdicts, noise, failing groups, resumed runs, comparisons, and the page."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from tests.benchmarks import http_servers, made_up, over_http, whole_path
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
from tests.benchmarks.made_up import reported, row
from tests.benchmarks.report import Group, Measured, Part, Report, State, run
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


def test_each_call_gets_newly_prepared_data():
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
    groups: Mapping[str, Group] = {
        "first": lambda: [row("one")],
        "second": made_up.failing,
        "third": lambda: [row("three")],
    }
    run(groups, report, output)
    error = "ValueError: the peer is broken"
    assert works(output) == ["one", "before the error", "three"]
    assert Report.load(output).failures == {"second": error}
    assert report.text().splitlines()[-1] == f"FAILED second: {error}"


def test_a_report_round_trips_through_its_file(tmp_path: Path):
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
    run({"failed": made_up.failing, "missing": lambda: [missing], "complete": lambda: [row()]}, report, output)
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
import sys
from tests.benchmarks import __main__ as bench
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
        "missing": "ModuleNotFoundError: No module named 'tests.benchmarks.no_such_module'",
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
    comparison = Report.load(new).comparison
    assert comparison
    assert [one.after for one in comparison.regressions] == [1.2]


def test_an_invalid_option_is_an_error(tmp_path: Path):
    output = tmp_path / "bench.json"
    unknown = bench("--only", "made_up.three", "--output", output)
    assert unknown.returncode == 2
    assert (
        "the groups are made_up.one, made_up.failing, made_up.dying, made_up.endless; got made_up.three"
        in unknown.stderr
    )
    absent = bench("--compare", tmp_path / "old.json", "--output", output)
    assert absent.returncode == 2
    assert "No such file" in absent.stderr


# Peers that are not installed, and servers


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> dict[str, Group]:
    """The groups over HTTP, on a machine where wrk alone is installed."""
    monkeypatch.setattr(shutil, "which", lambda tool: "/usr/bin/wrk" if tool == "wrk" else None)
    return over_http.groups(quick=True)


@pytest.mark.parametrize(("name", "tool"), [("nginx", "nginx"), ("go", "golang")])
def test_a_row_says_which_peer_is_not_installed(groups: dict[str, Group], name: str, tool: str):
    found = list(groups[name]())
    assert len(found) >= 3
    assert not any(one.is_measured for one in found)
    notes = {f"not measured: {name} is not installed (Debian: apt-get install {tool})"}
    assert {one.note for one in found} == notes


def test_without_wrk_each_row_over_http_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    for group in over_http.groups(quick=True).values():
        assert all("wrk is not installed" in one.note for one in group())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[http_servers.Server]:
    (tmp_path / "body").write_text("right")
    command = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(tmp_path), "PORT")
    with http_servers.serving(http_servers.Contender("peer", command, ())) as running:
        yield running


def test_a_server_is_stopped_unless_it_is_measured(server: http_servers.Server):
    def state() -> str:
        return Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    eventually(lambda: state() == "T")
    with server.running():
        eventually(lambda: state() != "T")
    eventually(lambda: state() == "T")


def test_bytes_are_compared_before_the_measurement(server: http_servers.Server):
    with server.running():
        assert http_servers.check(server, http_servers.Target("", "/body", b"right")) >= http_servers.ROUND_SECONDS
        with pytest.raises(RuntimeError, match="peer answers /body with 200: b'right'"):
            http_servers.check(server, http_servers.Target("", "/body", b"wrong"))
        with pytest.raises(RuntimeError, match="peer answers /nothing with 404"):
            http_servers.check(server, http_servers.Target("", "/nothing", None))


# The whole path


def test_a_publish_has_arrived_with_the_first_body_that_has_it_or_a_later_one():
    sent = [(1, 0), (2, 1_000_000), (3, 2_000_000), (4, 3_000_000)]
    received = [(0, 500_000), (1, 4_000_000), (3, 5_000_000), (4, 6_000_000)]
    assert list(whole_path.waits(sent, received)) == [4, 4, 3, 3]


def test_a_publish_that_does_not_arrive_is_an_error():
    with pytest.raises(RuntimeError, match="publish 2 did not arrive"):
        list(whole_path.waits([(1, 0), (2, 0)], [(1, 1)]))


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
