"""Pipes and devices at the path of a file that a server follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import special_files
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("case", special_files.CASES)
def test_a_pipe_or_device_is_logged_and_does_not_block_following_or_shutdown(tmp_path: Path, case: str):
    name, suffix, kind = special_files.CASES[case]
    outcome = special_files.run(tmp_path, name, suffix, kind, DEADLINE_SECONDS)
    assert outcome == special_files.Outcome(logged=True, resumed=True, ended=True)
