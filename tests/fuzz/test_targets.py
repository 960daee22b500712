"""The targets of `make fuzz`, with their seeds and a few mutations of each seed."""

from __future__ import annotations

import pytest

from tests.fuzz.seeds import mutations, seeds
from tests.fuzz.targets import TARGETS

MUTATIONS = 8


@pytest.mark.parametrize("target", TARGETS)
def test_the_library_agrees_with_the_grammar(target: str):
    for seed in seeds(target):
        for data in (seed, *mutations(target, seed, MUTATIONS)):
            try:
                TARGETS[target](data)
            except Exception as error:
                raise AssertionError(f"the target {target} fails on {data!r}") from error
