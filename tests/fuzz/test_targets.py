"""The targets of `make fuzz`, with their seeds and a few mutations of each seed."""

from __future__ import annotations

import pytest

from tests.fuzz.seeds import mutations, seeds
from tests.fuzz.targets import TARGETS

MUTATIONS = 8


# `times` measures a duration, so it is not part of the quick tests.
SLOW = pytest.param("times", marks=pytest.mark.thorough)


@pytest.mark.parametrize("target", [*sorted(TARGETS.keys() - {"times"}), SLOW])
def test_the_library_agrees_with_the_grammar(target: str):
    for seed in seeds(target):
        for data in (seed, *mutations(target, seed, MUTATIONS)):
            try:
                TARGETS[target](data)
            except Exception as error:
                raise AssertionError(f"the target {target} fails on {data!r}") from error
