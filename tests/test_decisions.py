"""Each decision of docs/decisions.md is proved by a test with the marker `decision`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_each_decision_is_proved_by_a_marked_test():
    decisions = set(map(int, re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "decisions.md").read_text(), re.MULTILINE)))
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    marks = re.findall(r"^ *@pytest\.mark\.decision\(([\d, ]+)\)$", tests, re.MULTILINE)
    assert {int(number) for mark in marks for number in mark.split(",")} == decisions
