"""The persistent sorted structure, compared with a dict; its layout depends only on the keys."""

from __future__ import annotations

import gc
import random
from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import eq
from time import thread_time
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index.chunked import BOUNDARY_MASK, MAX_UNSPLIT, Chunk, Chunked, KeyOrder
from market_index.wire.parts import EncodedPart


def hashes(keys: Iterable[int]) -> Iterable[int]:
    return (crc32(str(key).encode()) for key in keys)


RISING: KeyOrder[int, str] = KeyOrder(hashes=hashes, is_same=eq, keeps_item=lambda one, other: one[:1] == other[:1])
FALLING: KeyOrder[int, str] = KeyOrder(hashes=hashes, is_same=eq, sort_key=int.__neg__)
WITH_ITEMS: KeyOrder[int, str] = KeyOrder(hashes=hashes, is_same=eq, new_item="{}: {}".format)
ENDS = [key for key in range(20_000) if not next(iter(hashes([key]))) & BOUNDARY_MASK]


def built(order: KeyOrder[int, str], model: dict[int, str]) -> Chunked[int, str, str]:
    keys = sorted(model, reverse=order is FALLING)
    return Chunked(order, Chunk(keys, [model[key] for key in keys]))


def layout(content: Chunked[int, str, str]) -> tuple[list[tuple[list[int], list[str]]], tuple[int, ...], int]:
    return [(chunk.keys, list(chunk.values)) for chunk in content.chunks], content._bounds, content._size


# Adjacent keys, so that an example crosses the size below which nothing is split, also of keys that all end a chunk.
runs = st.builds(
    lambda among, start, count: among[start : start + count],
    st.sampled_from([range(450), ENDS]),
    st.integers(0, 300),
    st.integers(0, 150),
)
some_keys = st.lists(st.integers(0, 400) | st.sampled_from(ENDS[:12]), max_size=8) | runs
recurring = st.integers(0, 9) | st.integers(0, 400)
contents = st.lists(runs, max_size=3).map(lambda some: {key: "a" for run in some for key in run})
# None alone removes: an empty value is a value.
changes = st.lists(st.tuples(some_keys, st.sampled_from(["a", "b", "ab", "", None])), max_size=6)


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
        assert content._has_same_content(fresh)
        assert (content is before) == (layout(before) == layout(content))


@pytest.mark.parametrize("order", [RISING, FALLING], ids=["rising", "falling"])
@given(start=contents, steps=st.lists(st.tuples(some_keys.map(set), st.sampled_from(["", "a", "-"])), max_size=4))
def test_values_computed_from_those_before_equal_values_that_are_set(
    order: KeyOrder[int, str], start: dict[int, str], steps: list[tuple[set[int], str]]
):
    content, model = built(order, start), dict(start)
    for keys, added in steps:
        seen: dict[int, str | None] = {}

        def value_of(key: int, before: str | None, change: str, seen: dict[int, str | None] = seen) -> str | None:
            assert key not in seen
            seen[key] = before
            return None if change == "-" else (before or "") + change

        expected = {key: None if added == "-" else model.get(key, "") + added for key in keys}
        following = content._changed([(key, added) for key in keys], value_of)
        assert seen == {key: model.get(key) for key in keys}
        assert layout(following) == layout(content._changed(list(expected.items())))
        content, model = following, {key: one for key, one in (model | expected).items() if one is not None}


@pytest.mark.parametrize("order", [RISING, FALLING], ids=["rising", "falling"])
@given(
    changes=st.lists(st.tuples(st.integers(0, 9) | st.integers(0, 400), st.sampled_from(["a", "", None])), max_size=200)
)
def test_filling_an_empty_sequence_equals_inserting_one_by_one(
    order: KeyOrder[int, str], changes: list[tuple[int, str | None]]
):
    empty = built(order, {})
    filled, one_by_one = empty._changed(changes), empty
    model: dict[int, str] = {}
    for key, value in changes:
        one_by_one = one_by_one._changed([(key, value)])
        # The last change of a key wins.
        model.pop(key, None)
        if value is not None:
            model[key] = value
    assert layout(filled) == layout(one_by_one) == layout(built(order, model))
    assert (filled is empty) == (not model)
    assert layout(empty) == layout(built(order, {}))


def test_a_filled_sequence_has_values_of_the_type_of_the_empty_one():
    empty: Chunked[int, int, None] = Chunked(KeyOrder(hashes=hashes, is_same=eq), Chunk([], array("Q")))
    for filled in (empty._changed([(1, 7)]), empty._changed([(number, 7) for number in range(1, 500)])):
        assert {type(chunk.values) for chunk in filled.chunks} == {array}


@pytest.mark.parametrize("size", [MAX_UNSPLIT - 1, MAX_UNSPLIT, MAX_UNSPLIT + 1])
def test_a_sequence_that_grows_and_shrinks_is_split_and_joined_at_one_size(size: int):
    model = dict.fromkeys([ENDS[0], *range(ENDS[0] + 1, ENDS[0] + size)], "a")
    content, larger = built(RISING, model), built(RISING, model | {20_000: "b"})
    assert layout(content._changed([(20_000, "b")])) == layout(larger)
    assert layout(larger._changed([(20_000, None)])) == layout(content)


def test_two_chunks_that_become_small_are_joined():
    model = dict.fromkeys([key for key in range(MAX_UNSPLIT + 50) if key not in ENDS][:MAX_UNSPLIT] + ENDS[:1], "a")
    content = built(RISING, model)
    assert len(content.chunks) == 2
    removed = next(key for key in model if key not in ENDS)
    del model[removed]
    assert layout(content._changed([(removed, None)])) == layout(built(RISING, model))


def test_two_changes_may_be_in_any_order():
    model = {key: "a" for key in range(2_000) if key not in {ENDS[2], ENDS[5]}}
    changes = [(ENDS[5], "b"), (ENDS[2], "b")]
    assert layout(built(RISING, model)._changed(changes)) == layout(built(RISING, model | dict(changes)))


def test_a_change_without_effect_does_not_end_the_changes():
    content = built(RISING, {1: "a", 3: "a"})
    assert layout(content._changed([(0, None), (1, "a"), (3, "b")])) == layout(built(RISING, {1: "a", 3: "b"}))
    assert layout(content._changed([(1, "a"), (2, None), (3, "b")])) == layout(built(RISING, {1: "a", 3: "b"}))


def test_only_equal_keys_and_values_in_one_order_are_the_same_content():
    content = built(RISING, {1: "a", 2: "b"})
    assert content._has_same_content(built(RISING, {1: "a", 2: "b"}))
    for other in (
        built(RISING, {1: "a", 2: "c"}),
        built(RISING, {1: "a", 3: "b"}),
        built(RISING, {1: "a"}),
        built(WITH_ITEMS, {1: "a", 2: "b"}),
    ):
        assert not content._has_same_content(other)
    assert content.chunks[0] != (content.chunks[0].keys, content.chunks[0].values)


@pytest.mark.parametrize("end", [key for key in ENDS if MAX_UNSPLIT < key < 1_000])
def test_a_head_ends_at_a_boundary_as_a_fresh_build_does(end: int):
    head = built(RISING, dict.fromkeys(range(2_000), "a"))._head(end + 1)
    assert layout(head) == layout(built(RISING, dict.fromkeys(range(end + 1), "a")))


@given(start=contents, count=st.integers(0, 500))
def test_its_head_equals_a_fresh_build(start: dict[int, str], count: int):
    content = built(RISING, start)
    head = content._head(count)
    assert layout(head) == layout(built(RISING, {key: start[key] for key in sorted(start)[:count]}))
    assert (head is content) == (count >= len(start))


@pytest.mark.parametrize("order", [RISING, FALLING], ids=["rising", "falling"])
@given(start=contents, key=st.integers(0, 500))
def test_a_key_is_found_where_it_is(order: KeyOrder[int, str], start: dict[int, str], key: int):
    # Each value names its key.
    found = built(order, {one: str(one) for one in start})._at(key)
    assert (found is not None) == (key in start)
    if found is not None:
        assert found == str(key)


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


def test_many_changes_copy_a_chunk_once(monkeypatch: pytest.MonkeyPatch):
    copy, copied = Chunk.copy, []

    def counted(chunk: Chunk[Any, Any, Any]) -> Chunk[Any, Any, Any]:
        copied.append(chunk)
        return copy(chunk)

    monkeypatch.setattr(Chunk, "copy", counted)
    content = built(RISING, dict.fromkeys(range(10_000), "a"))
    changed = dict.fromkeys(range(0, 10_000, 2), "b")
    assert layout(content._changed(changed.items())) == layout(
        built(RISING, dict.fromkeys(range(10_000), "a") | changed)
    )
    assert len(copied) == len(content.chunks)


def test_changing_keys_that_all_end_a_chunk_takes_linear_time():
    keys = range(640_000)
    ends = list(compress(keys, [not mixed & BOUNDARY_MASK for mixed in hashes(keys)]))

    def seconds(some: Sequence[int]) -> float:
        some = random.Random(1).sample(some, len(some))
        content, added = built(RISING, {-1: "a"}), [(key, "a") for key in some]
        # The collector would also inspect the objects of all other tests.
        gc.disable()
        try:
            start = thread_time()
            for half in (added[::2], added[1::2]):
                content = content._changed(half)
            content = content._changed([(key, None) for key in some])
            assert content._size == 1
            return thread_time() - start
        finally:
            gc.enable()

    # Measured: 3 times as long; 20 times if all chunks are copied at each boundary.
    assert min(seconds(ends) for _ in range(3)) < 10 * min(seconds(range(len(ends))) for _ in range(3))


def test_keys_without_any_boundary_are_one_chunk():
    keys = [key for key in range(5_000) if key not in ENDS]
    assert len(built(RISING, dict.fromkeys(keys, "a")).chunks) == 1


@given(start=contents, steps=changes, every=st.integers(1, 3))
def test_items_move_with_their_values(start: dict[int, str], steps: list[tuple[Iterable[int], str | None]], every: int):
    content = built(RISING, start)
    for keys, value in steps:
        for chunk in content.chunks[::every]:
            chunk.items = [f"item of {one[:1]}" for one in chunk.values]
            chunk.encoded = EncodedPart("".join(one[:1] for one in chunk.values).encode())
        content = content._changed([(key, value) for key in keys])
        for chunk in content.chunks:
            assert chunk.items is None or len(chunk.items) == len(chunk.keys)
            # A kept item is valid: that of "a" is valid for "ab", but not for "b".
            assert all(
                item in {None, f"item of {one[:1]}"} for item, one in zip(chunk.items or (), chunk.values, strict=False)
            )
            assert chunk.encoded is None or chunk.encoded.text.decode() == "".join(one[:1] for one in chunk.values)


@given(start=contents, steps=changes)
def test_a_chunk_with_items_has_the_new_item_of_each_new_value(
    start: dict[int, str], steps: list[tuple[Iterable[int], str | None]]
):
    content = built(WITH_ITEMS, start)
    for keys, value in steps:
        for chunk in content.chunks:
            chunk.items = list(map(WITH_ITEMS.new_item, chunk.keys, chunk.values))
        # An empty sequence is rebuilt without items.
        is_kept = content._size > 0
        content = content._changed([(key, value) for key in keys])
        for chunk in (*content.chunks, *content._head(100).chunks) if is_kept else ():
            assert chunk.items == list(map(WITH_ITEMS.new_item, chunk.keys, chunk.values))


def test_a_replacement_that_keeps_its_item_keeps_what_is_cached_of_the_chunk():
    content = built(RISING, dict.fromkeys(range(10), "a"))
    encoded = EncodedPart(b"encoded")
    content.chunks[0].items, content.chunks[0].encoded = list("0123456789"), encoded
    kept = content._changed([(3, "ab")]).chunks[0]
    assert kept.items == list("0123456789")
    assert kept.encoded is encoded
    replaced = content._changed([(3, "b")]).chunks[0]
    assert replaced.items == [*"012", None, *"456789"]
    assert replaced.encoded is None
