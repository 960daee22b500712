"""All faults of a producer's lines are found in one run, and none that an earlier one explains."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index.contract import Response
from market_index_feeds import FeedError
from market_index_feeds.checking import Finding, check_lines
from market_index_feeds.ledger.checking import check_ledger
from market_index_feeds.lines import Line
from market_index_feeds.orders import Blocks
from tests.command import invoke, line
from tests.feeds.event_lines import RESET, block, event, place, remove, rollback, spot, untrack

MOST = 2**64 - 1


def findings(*lines: bytes, prefix: str = "orders:") -> list[Finding]:
    with TemporaryDirectory() as folder:
        name = f"{prefix}{folder}/lines.ndjson"
        Path(folder, "lines.ndjson").write_bytes(b"".join(lines))
        return [*check_lines(name)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([place("a", price=2)], [(2, "place", "a", "price must be a string")]),
        ([place("a", price=2), remove("a")], [(2, "place", "a", "price must be a string")]),
        ([place("a", price=2), untrack(1), remove("b")], [(2, "place", "a", ""), (4, "remove", "b", "no such order")]),
        ([remove("a"), remove("a")], [(2, "remove", "a", "no such order"), (3, "remove", "a", "no such order")]),
        (
            [place("a"), untrack(1), remove("b")],
            [(3, "untrack", None, "no orders"), (4, "remove", "b", "no such order")],
        ),
        ([spot(1, 2), remove("a")], [(2, "spot", None, "a string"), (3, "remove", "a", "")]),
        (
            [block("1"), block("1"), block(" 1"), remove("a")],
            [(3, "block", None, "not repeat"), (4, "block", None, "no space"), (5, "remove", "a", "")],
        ),
        ([rollback("1"), remove("a")], [(2, "rollback", None, "must be retained")]),
        (
            [rollback("1"), remove("a"), RESET, remove("b")],
            [(2, "rollback", None, ""), (5, "remove", "b", "no such order")],
        ),
        ([b"x\n", remove("a"), place("b", amount=0.5)], [(2, None, None, "JSON"), (4, "place", "b", "whole number")]),
        (
            [b"x\n", remove("a"), remove("a"), place("b", price=2), remove("c")],
            [(2, None, None, ""), (5, "place", "b", "")],
        ),
        (
            [place("a"), event(remove="a", x=1), untrack(1), remove("b")],
            [(3, "remove", "a", "unknown key 'x'"), (5, "remove", "b", "")],
        ),
        ([place("a", price=2), place("a"), remove("a"), remove("a")], [(2, "place", "a", ""), (5, "remove", "a", "")]),
        ([event(untrack=1), remove("a")], [(2, "untrack", None, "missing base"), (3, "remove", "a", "")]),
        ([event(other=1), remove("a")], [(2, None, None, "must have one of the keys")]),
        ([event(place=7), remove("a")], [(2, "place", None, "missing amount")]),
    ],
)
def test_each_fault_is_found_and_no_consequence(lines: list[bytes], expected: list[tuple[int, str, str, str]]):
    found = [one for one in findings(RESET, *lines) if not one.is_warning]
    assert [(one.line, one.event, one.order_id) for one in found] == [one[:3] for one in expected]
    assert all(text in one.reason for one, (*_, text) in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [place("a"), block("1"), remove("a"), place("a"), block("2")],
            [(5, "an id that was removed is placed again")],
        ),
        ([block("1"), place("a"), remove("a"), rollback("1"), place("a"), block("2")], []),
        ([place("a"), remove("a"), place("b"), block("1")], []),
        ([place("a", amount=MOST), place("b"), block("1"), block("2")], [(4, "has 1 levels of 2^64-1 or more")]),
        ([place("a", price="1/0"), block("1")], [(2, "order 'a' has no liquidity")]),
        ([block("1"), place("a")], [(3, "ends while events wait for a block (events: 1)")]),
    ],
)
def test_what_may_be_right_is_a_warning(lines: list[bytes], expected: list[tuple[int, str]]):
    found = findings(RESET, *lines)
    assert [(one.line, one.is_warning) for one in found] == [(number, True) for number, _ in expected]
    assert all(text in one.reason for one, (_, text) in zip(found, expected, strict=True))


def test_events_may_begin_in_the_middle_but_need_a_reset():
    assert findings(b"half a line\n", remove("a"), RESET, place("a"), block("1")) == []
    (one,) = findings(place("a"), block("1"))
    assert (one.line, "contains no reset" in one.reason) == (2, True)


def test_a_rollback_goes_back_as_far_as_the_history_of_the_name(tmp_path: Path):
    path = tmp_path / "events.ndjson"
    path.write_bytes(RESET + block("1") + block("2") + rollback("1"))
    assert [len([*check_lines(f"orders:{path}?history={blocks}")]) for blocks in (0, 1)] == [1, 0]


IDS = st.sampled_from(["a", "b"])
EVENTS = st.one_of(
    st.builds(place, IDS, st.integers(1, 2), st.sampled_from([1, "x", -1]), st.sampled_from(["2", "1/0", 2])),
    st.builds(remove, IDS),
    st.builds(untrack, st.integers(1, 2)),
    st.builds(spot, st.integers(1, 2), st.sampled_from(["2", None, 7])),
    st.builds(block, st.sampled_from("123")),
    st.builds(rollback, st.sampled_from("123")),
    st.sampled_from([RESET, b"x\n", b"\n", b'{"reset": false}\n']),
)
RESETS = st.sampled_from([RESET, b'{"\\u0072eset": true}\n'])


@given(RESETS, st.lists(EVENTS, max_size=12))
def test_a_check_finds_a_fault_exactly_if_a_follower_does_and_the_same_first_one(reset: bytes, lines: list[bytes]):
    rejected: list[str] = []
    blocks = Blocks(2160, lambda place, reason: rejected.append(f"{place}: {reason}"))
    for number, one in enumerate([reset, *lines], 1):
        blocks.read(Line(number, one.removesuffix(b"\n")))
    faults = [f"line {one.line}: {one.reason}" for one in findings(reset, *lines) if not one.is_warning]
    serious = [one for one in rejected if "has no liquidity" not in one and "has no spot price" not in one]
    assert faults[:1] == serious[:1]


def test_lines_of_books_are_checked(tmp_path: Path):
    found = findings(line(1).encode(), b'{"base": 4}\n', b"\n", line(2).encode(), b"x", prefix="")
    assert [(one.line, one.reason.partition(":")[0]) for one in found] == [
        (2, "base"),
        (5, "must be JSON, but is not at character 0"),
    ]


def test_the_command_lists_faults_and_ends_with_1(tmp_path: Path):
    path = tmp_path / "events.ndjson"
    path.write_bytes(RESET + place("a", price=2) + place("b", price="1/0") + block("1"))
    done = invoke("check", f"orders:{path}")
    assert (done.returncode, done.stdout.splitlines()) == (
        1,
        [
            "line 2: place a: price must be a string, got 2",
            "warning: line 3: place b: order 'b' has no liquidity: a ratio must have a denominator above 0, got '1/0'",
            "1 fault, 1 warning",
        ],
    )
    (first, _) = map(json.loads, invoke("check", f"orders:{path}", "--json").stdout.splitlines())
    fault = {"line": 2, "reason": "price must be a string, got 2", "event": "place", "order_id": "a"}
    assert first == fault | {"is_warning": False}
    assert invoke("check", "orders:-", stdin=RESET.decode() + block("1").decode()).stdout == "0 faults, 0 warnings\n"


@pytest.mark.parametrize(
    ("tip", "checkpoint", "holds"), [(220, "100", True), (221, "100", False), (None, "100", False), (100, "", False)]
)
def test_the_lag_of_a_kupo_is_a_fact_also_if_it_is_unknown(tip: int | None, checkpoint: str, *, holds: bool):
    health = json.dumps({"version": "v2.12", "connection_status": "connected", "most_recent_node_tip": tip})
    response = Response(200, {"X-Most-Recent-Checkpoint": checkpoint}, health.encode())
    source: Any = None  # it is read after these facts
    *_, lag = islice(check_ledger(source, lambda _: response), 3)
    assert (lag.name, lag.holds) == ("lag", holds)


@pytest.mark.parametrize("body", [b"[]", b"<html>", b"7"])
def test_a_kupo_without_health_is_an_error(body: bytes):
    source: Any = None
    with pytest.raises(FeedError, match="is it a Kupo"):
        next(check_ledger(source, lambda _: Response(200, {}, body)))
