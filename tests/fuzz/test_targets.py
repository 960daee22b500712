"""The targets of `make fuzz`, with their seeds and a few mutations of each seed."""

from __future__ import annotations

import pytest

from tests.fuzz.seeds import mutations, seeds
from tests.fuzz.targets import TARGETS

# Each mutation of a long text takes as long as the seed.
MUTATIONS = dict.fromkeys(TARGETS, 8) | {"long-texts": 0}


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_is_a_finding(target: str):
    """A reader whose Python code takes quadratic time runs for hours, which the timeout of pytest ends."""
    for seed in seeds(target):
        for data in (seed, *mutations(target, seed, MUTATIONS[target])):
            try:
                TARGETS[target](data)
            except Exception as error:
                raise AssertionError(f"the target {target} fails on {data!r}") from error
