"""Each module has tests for `make mutants`, and each seeded fault names existing tests."""

from __future__ import annotations

from tests.mutants import __main__ as mutants
from tests.mutants import faults


def test_each_module_and_each_seeded_fault_has_tests():
    patches = [*faults.PATCHES.glob("*.patch")]
    assert (len(mutants.MODULES) > 100, len(patches) > 40) == (True, True)
    tests = [name for module in mutants.MODULES for name in mutants.tests_of(module)]
    tests += [name for patch in patches for name in faults.tests_of(patch)]
    assert [name for name in tests if not (faults.ROOT / name).exists()] == []
