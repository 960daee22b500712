"""The table of `make mutants` refers to existing modules and tests."""

from __future__ import annotations

from tests.mutants.__main__ import ROOT, TESTS


def test_the_mutated_modules_and_their_tests_exist():
    named = {*TESTS, *(test for tests in TESTS.values() for test in tests)}
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
