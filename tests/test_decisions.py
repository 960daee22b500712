"""Each decision of docs/decisions.md that is built is proved by a test with the marker `decision`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_each_decision_is_proved_by_a_marked_test():
    page = (ROOT / "docs" / "decisions.md").read_text()
    (not_built,) = re.findall(r"^Not built yet: ([^.]*)\.", page, re.MULTILINE)
    decisions = set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE)) - set(re.findall(r"\d+", not_built))
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    marks = re.findall(r"^ *@pytest\.mark\.decision\(([\d, ]+)\)$", tests, re.MULTILINE)
    assert {number for mark in marks for number in mark.split(", ")} == decisions
