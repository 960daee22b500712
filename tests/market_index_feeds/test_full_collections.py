"""Full garbage collections while books are read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from market_index_feeds.full_collections import full_collections_postponed


@contextmanager
def counted_collections() -> Iterator[list[int]]:
    """Yield the number of collections of each generation, in this block."""
    counts = [0, 0, 0]

    def count(phase: str, collection: dict[str, int]) -> None:
        counts[collection["generation"]] += phase == "start"

    gc.callbacks.append(count)
    try:
        yield counts
    finally:
        gc.callbacks.remove(count)


def survivors() -> list[list[int]]:
    """Return more new objects than a quarter of all objects."""
    return [[] for _ in range(len(gc.get_objects()) + 100_000)]


def test_no_full_collection_runs_while_they_are_postponed():
    with counted_collections() as usual:
        assert survivors()
    with counted_collections() as postponed, full_collections_postponed:
        assert survivors()
    assert usual[2] > 0
    assert postponed[2] == 0
    assert postponed[0] > 0
    assert postponed[1] > 0


def test_they_are_postponed_until_the_last_of_several_readers_ends():
    before = gc.get_threshold()
    first, second = ExitStack(), ExitStack()
    first.enter_context(full_collections_postponed)
    postponed = gc.get_threshold()
    second.enter_context(full_collections_postponed)
    first.close()
    assert gc.get_threshold() == postponed != before
    second.close()
    assert gc.get_threshold() == before


def test_a_younger_threshold_that_was_changed_meanwhile_is_kept():
    before = gc.get_threshold()
    try:
        with full_collections_postponed:
            gc.set_threshold(701, 11, gc.get_threshold()[2])
        assert gc.get_threshold() == (701, 11, before[2])
    finally:
        gc.set_threshold(*before)
