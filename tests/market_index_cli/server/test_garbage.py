"""Garbage collections of a server."""

from __future__ import annotations

import gc
from weakref import ref

from market_index_cli.server.garbage import survivors_frozen


class Node:
    """Can be part of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


def test_what_survives_a_full_collection_is_not_inspected_again():
    before = gc.get_freeze_count()
    with survivors_frozen():
        kept = Node()
        assert any(one is kept for one in gc.get_objects())
        gc.collect()
        # Objects in the permanent generation are in none of those that are listed.
        assert not any(one is kept for one in gc.get_objects())
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0
    assert any(one is kept for one in gc.get_objects())


def test_a_frozen_object_is_freed_when_nothing_refers_to_it():
    with survivors_frozen():
        kept = Node()
        gc.collect()
        freed = ref(kept)
        del kept
        assert freed() is None


def test_a_new_cycle_is_freed_by_a_collection():
    with survivors_frozen():
        first, second = Node(), Node()
        first.other, second.other = second, first
        freed = ref(first)
        del first, second
        gc.collect(1)
        assert freed() is None
