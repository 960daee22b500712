"""A skipped test turns a run red, unless its reason is allowed."""

from __future__ import annotations

import pytest

from tests.conftest import Skips


@pytest.mark.parametrize(
    ("reason", "is_allowed", "is_allowed_in_ci"),
    [
        ("namespaces are not permitted here", True, True),
        ("nginx is not installed", True, False),
        ("prometheus is not installed: apt-get install prometheus", True, False),
        ("it fails sometimes", False, False),
    ],
)
def test_only_a_listed_reason_is_allowed(
    reason: str, is_allowed: bool, is_allowed_in_ci: bool, monkeypatch: pytest.MonkeyPatch
):
    skips = Skips()
    skips.found["tests/test_one.py"] = reason
    for value, expected in (("", is_allowed), ("1", is_allowed_in_ci)):
        monkeypatch.setenv("MARKET_INDEX_ALL_PROGRAMS", value)
        assert (not skips.unexpected()) is expected
