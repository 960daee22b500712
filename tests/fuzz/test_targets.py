"""The targets of `make fuzz`, with their seeds and a few mutations of each seed."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

from tests.fuzz.seeds import mutations, seeds
from tests.fuzz.targets import TARGETS
from tests.waiting import DEADLINE_SECONDS

# Each mutation of a long text takes as long as the seed.
MUTATIONS = dict.fromkeys(TARGETS, 8) | {"long-texts": 0}


@pytest.fixture
def ends_if_it_hangs() -> Iterator[None]:
    """End the process if a test does not return, which quadratic time looks like. No signal interrupts a search."""
    faulthandler.dump_traceback_later(DEADLINE_SECONDS, exit=True, file=2)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.usefixtures("ends_if_it_hangs")
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_is_a_finding(target: str):
    for seed in seeds(target):
        for data in (seed, *mutations(target, seed, MUTATIONS[target])):
            try:
                TARGETS[target](data)
            except Exception as error:
                raise AssertionError(f"the target {target} fails on {data!r}") from error
