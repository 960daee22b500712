"""Each decision of docs/decisions.md is proved by a collected test with its mark; `pytest --decision 12` runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import DECISIONS

ROOT = Path(__file__).resolve().parents[1]


def test_each_decision_is_proved_by_a_collected_test(pytestconfig: pytest.Config):
    if pytestconfig.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        pytest.skip("only a run of all tests collects those of every decision")
    page = (ROOT / "docs" / "decisions.md").read_text()
    (not_built,) = re.findall(r"^Not built yet: ([^.]*)\.", page, re.MULTILINE)
    decisions = set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE)) - set(re.findall(r"\d+", not_built))
    assert pytestconfig.stash[DECISIONS] == {int(number) for number in decisions}
