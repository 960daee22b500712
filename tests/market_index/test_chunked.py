"""The persistent sorted structure, against a dict; and that its layout depends on nothing but the keys."""

from __future__ import annotations

from collections.abc import Iterable
from operator import eq
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index.chunked import BOUNDARY_MASK, MAX_UNSPLIT, Chunk, Chunked, KeyOrder


def hashes(keys: Iterable[int]) -> Iterable[int]:
    return (crc32(str(key).encode()) for key in keys)


RISING: KeyOrder[int, str] = KeyOrder(hashes=hashes, is_same=eq, keeps_item=lambda one, other: one[0] == other[0])
FALLING: KeyOrder[int, str] = KeyOrder(hashes=hashes, is_same=eq, sort_key=int.__neg__)
ENDS = [key for key in range(20_000) if not next(iter(hashes([key]))) & BOUNDARY_MASK]


def built(order: KeyOrder[int, str], model: dict[int, str]) -> Chunked[int, str]:
    keys = sorted(model, reverse=order is FALLING)
    return Chunked(order, Chunk(keys, [model[key] for key in keys]))


def layout(content: Chunked[int, str]) -> list[tuple[list[int], list[str]]]:
    return [(chunk.keys, list(chunk.values)) for chunk in content.chunks]


# Ranges, so that one example crosses the size up to which nothing is split; and keys at which a chunk ends.
runs = st.builds(lambda start, count: range(start, start + count), st.integers(0, 300), st.integers(0, 150))
some_keys = st.lists(st.integers(0, 400) | st.sampled_from(ENDS[:12]), max_size=8) | runs
contents = st.lists(runs, max_size=3).map(lambda some: {key: "a" for run in some for key in run})
changes = st.lists(st.tuples(some_keys, st.sampled_from(["a", "b", "ab", None])), max_size=6)


@pytest.mark.parametrize("order", [RISING, FALLING], ids=["rising", "falling"])
@given(start=contents, steps=changes)
def test_a_changed_sequence_equals_a_fresh_build(
    order: KeyOrder[int, str], start: dict[int, str], steps: list[tuple[Iterable[int], str | None]]
):
    model = dict(start)
    content = built(order, model)
    for keys, value in steps:
        before, as_it_was = content, layout(content)
        content = content._changed([(key, value) for key in keys])
        assert layout(before) == as_it_was
        for key in keys:
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        fresh = built(order, model)
        assert layout(content) == layout(fresh)
        assert (content._bounds, content._size) == (fresh._bounds, fresh._size)
        assert content._has_same_content(fresh)
        assert (content is before) == (layout(before) == layout(content))


@given(start=contents, count=st.integers(0, 500))
def test_its_head_equals_a_fresh_build(start: dict[int, str], count: int):
    content = built(RISING, start)
    head = content._head(count)
    assert layout(head) == layout(built(RISING, {key: start[key] for key in sorted(start)[:count]}))
    assert (head is content) == (count >= len(start))


@given(start=contents, key=st.integers(0, 500))
def test_a_key_is_found_where_it_is(start: dict[int, str], key: int):
    found = built(RISING, start)._find(key)
    assert (found is not None) == (key in start)
    if found is not None:
        chunk, position = found
        assert chunk.keys[position] == key


def test_a_chunk_ends_at_the_keys_whose_hash_is_a_boundary():
    content = built(RISING, dict.fromkeys(range(1_000), "a"))
    assert list(content._bounds) == [key for key in ENDS if key < 1_000]
    assert [chunk.keys[-1] for chunk in content.chunks[:-1]] == list(content._bounds)
    assert len(built(RISING, dict.fromkeys(range(MAX_UNSPLIT), "a")).chunks) == 1


def test_a_change_copies_one_chunk_and_shares_the_others():
    content = built(RISING, dict.fromkeys(range(10_000), "a"))
    assert not {5_001, 10_001} & set(ENDS)
    for change in ((5_001, "b"), (5_001, None), (10_001, "b")):
        changed = content._changed([change])
        shared = {id(chunk) for chunk in content.chunks} & {id(chunk) for chunk in changed.chunks}
        assert len(shared) == len(content.chunks) - 1


def test_keys_without_any_boundary_are_one_chunk():
    keys = [key for key in range(5_000) if key not in ENDS]
    assert len(built(RISING, dict.fromkeys(keys, "a")).chunks) == 1


@given(start=contents, steps=changes)
def test_items_follow_their_values(start: dict[int, str], steps: list[tuple[Iterable[int], str | None]]):
    content = built(RISING, start)
    for keys, value in steps:
        for chunk in content.chunks:
            chunk.items = [f"item of {one[0]}" for one in chunk.values]
            chunk.encoded = "".join(one[0] for one in chunk.values)
        content = content._changed([(key, value) for key in keys])
        for chunk in content.chunks:
            assert chunk.items is None or len(chunk.items) == len(chunk.keys)
            # An item is there only if it is valid: that of "a" holds for "ab", but not for "b".
            assert all(
                item in {None, f"item of {one[0]}"} for item, one in zip(chunk.items or (), chunk.values, strict=False)
            )
            assert chunk.encoded in {None, "".join(one[0] for one in chunk.values)}


def test_a_replacement_that_keeps_its_item_keeps_what_is_cached_of_the_chunk():
    content = built(RISING, dict.fromkeys(range(10), "a"))
    content.chunks[0].items, content.chunks[0].encoded = list(range(10)), "encoded"
    kept = content._changed([(3, "ab")]).chunks[0]
    assert (kept.items, kept.encoded) == (list(range(10)), "encoded")
    replaced = content._changed([(3, "b")]).chunks[0]
    assert (replaced.items, replaced.encoded) == ([0, 1, 2, None, 4, 5, 6, 7, 8, 9], None)
