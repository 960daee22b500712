"""Pipes and devices at the paths that a server follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import odd_files
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("case", odd_files.CASES)
def test_what_is_not_a_file_is_logged_and_blocks_neither_following_nor_the_end(tmp_path: Path, case: str):
    name, suffix, kind = odd_files.CASES[case]
    outcome = odd_files.run(tmp_path, name, suffix, kind, DEADLINE_SECONDS)
    assert outcome == odd_files.Outcome(logged=True, resumed=True, ended=True)


def test_a_thread_that_is_stuck_does_not_keep_the_server_from_ending(tmp_path: Path):
    assert odd_files.run_swapped(tmp_path, DEADLINE_SECONDS).ended
