"""Each module has tests for `make mutants`, and each seeded fault can be applied and names existing tests."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.mutants import __main__ as mutants
from tests.mutants.faults import PATCHES, ROOT


def test_each_module_has_tests():
    assert len(mutants.MODULES) > 100
    tests = [name for module in mutants.MODULES for name in mutants.tests_of(module)]
    assert [name for name in tests if not (ROOT / name).exists()] == []


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
def test_each_seeded_fault_can_be_applied_and_names_existing_tests():
    for patch in sorted(PATCHES.glob("*.patch")):
        tests = patch.read_text().partition("\n")[0].removeprefix("Tests: ").split()
        assert [name for name in tests if not (ROOT / name).exists()] == [], patch.name
        command = ["patch", "-p1", "-F0", "--dry-run", "-i", str(patch)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{patch.name}:\n{done.stdout}"
