"""The settings and verdicts of `make mutants` refer to existing code and tests."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import ROOT, Mutant, mutable_modules, own_tests, verdicts


@pytest.mark.parametrize("module", mutable_modules())
def test_a_mutated_module_has_tests(module: str):
    assert own_tests(module)
    assert all((ROOT / test).is_file() for test in own_tests(module))


@pytest.mark.parametrize("mutant", verdicts(), ids=lambda mutant: f"{mutant.module} {mutant.function}")
def test_a_verdict_refers_to_existing_code(mutant: Mutant):
    lines = {line.strip() for line in (ROOT / mutant.module).read_text().splitlines()}
    assert set(mutant.old.splitlines()) <= lines
