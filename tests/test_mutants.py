"""The table of `make mutants` and the seeded faults refer to existing code and tests."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.mutants.__main__ import ROOT, TESTS
from tests.mutants.faults import PATCHES


def test_the_mutated_modules_and_their_tests_exist():
    named = {*TESTS, *(test for tests in TESTS.values() for test in tests)}
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
def test_each_seeded_fault_can_be_applied_and_names_existing_tests():
    for patch in sorted(PATCHES.glob("*.patch")):
        tests = patch.read_text().partition("\n")[0].removeprefix("Tests: ").split()
        assert [name for name in tests if not (ROOT / name).exists()] == [], patch.name
        command = ["patch", "-p1", "-F0", "--dry-run", "-i", str(patch)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{patch.name}:\n{done.stdout}"
