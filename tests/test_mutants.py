"""The settings and verdicts of `make mutants` refer to existing code and tests."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import (
    MORE_TESTS,
    ROOT,
    SKIPPED,
    Mutant,
    has_verdict,
    mutable_modules,
    own_tests,
    replacements,
    verdicts,
)


@pytest.mark.parametrize("module", mutable_modules())
def test_a_mutated_module_has_tests(module: str):
    assert own_tests(module)
    assert all((ROOT / test).is_file() for test in own_tests(module))


def test_modules_with_settings_exist():
    assert {*MORE_TESTS, *SKIPPED} <= {path.relative_to(ROOT).as_posix() for path in ROOT.glob("market_index/**/*.py")}


@pytest.mark.parametrize(
    ("new", "has_one"),
    [("zip(a, b, strict=False)", True), ("zip(a, b, )", True), ("zip(a, strict=True)", False)],
)
def test_a_verdict_applies_only_to_its_replacement(new: str, has_one: bool):
    assert has_verdict(Mutant("module.py", "function", "zip(a, b, strict=True)", new), {}) is has_one


@pytest.mark.parametrize(("old", "new"), replacements())
def test_a_verdict_on_a_replacement_refers_to_existing_code(old: str, new: str):
    del new
    assert any(old in (ROOT / module).read_text() for module in mutable_modules())


@pytest.mark.parametrize("mutant", verdicts(), ids=lambda mutant: f"{mutant.module} {mutant.function}")
def test_a_verdict_refers_to_existing_code(mutant: Mutant):
    lines = {line.strip() for line in (ROOT / mutant.module).read_text().splitlines()}
    assert set(mutant.old.splitlines()) <= lines
