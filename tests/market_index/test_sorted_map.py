"""The persistent sorted map, compared with a dict; its layout depends only on the keys."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeAlias
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from market_index.sorted_map import BOUNDARY_MASK, MAX_UNSPLIT, KeyOrder, SortedMap
from market_index.wire.parts import EncodedPart


def octets(key: int) -> bytes:
    return str(key).encode()


RISING: KeyOrder[int, str] = KeyOrder(octets, keeps_encoded=lambda one, other: one[:1] == other[:1])
FALLING: KeyOrder[int, str] = KeyOrder(octets, sort_key=int.__neg__)
ENDS = [key for key in range(20_000) if not crc32(octets(key)) & BOUNDARY_MASK]


def built(order: KeyOrder[int, str], model: dict[int, str]) -> SortedMap[int, str]:
    keys = sorted(model, reverse=order is FALLING)
    return SortedMap.of(order, keys, [model[key] for key in keys])


def layout(content: SortedMap[int, str]) -> tuple[list[tuple[tuple[int, ...], list[str]]], tuple[int, ...], int]:
    return [(chunk.keys, list(chunk.values)) for chunk in content.chunks], content.bounds, content.size


# Adjacent keys, so that an example crosses the size below which nothing is split, also of keys that all end a chunk.
runs = st.builds(
    lambda among, start, count: among[start : start + count],
    st.sampled_from([range(450), ENDS]),
    st.integers(0, 300),
    st.integers(0, 150),
)
some_keys = st.lists(st.integers(0, 9) | st.integers(0, 400) | st.sampled_from(ENDS[:12]), max_size=8) | runs
contents = st.lists(runs, max_size=3).map(lambda some: {key: "a" for run in some for key in run})
# None alone removes: an empty value is a value. A key may repeat, with another value.
some_values = st.sampled_from(["a", "b", "ab", "", None])
alike = st.builds(lambda keys, value: [(key, value) for key in keys], some_keys, some_values)
mixed = st.lists(st.tuples(st.integers(0, 9) | st.integers(0, 400), some_values), max_size=100)
steps_of_changes = st.lists(alike | mixed | st.tuples(alike, mixed).map(lambda two: [*two[0], *two[1]]), max_size=6)
Changes: TypeAlias = Sequence[tuple[int, str | None]]


def changed(model: dict[int, str], changes: Changes) -> dict[int, str]:
    """Return a dict after changes, the last of which wins for each key."""
    return {key: value for key, value in {**model, **dict(changes)}.items() if value is not None}


@pytest.mark.parametrize("order", [RISING, FALLING], ids=["rising", "falling"])
@given(start=contents, steps=steps_of_changes)
def test_a_changed_sequence_equals_a_fresh_build_and_differs_from_the_first_as_two_dicts_do(
    order: KeyOrder[int, str], start: dict[int, str], steps: list[Changes]
):
    model = dict(start)
    earlier = content = built(order, model)
    for changes in steps:
        before, as_it_was = content, layout(content)
        content = content.changed(changes)
        assert layout(before) == as_it_was
        model = changed(model, changes)
        fresh = built(order, model)
        assert layout(content) == layout(fresh)
        assert content == fresh
        assert content != built(KeyOrder(octets), model)
        assert all(content.get(key) == model.get(key) for key in [*model, *range(0, 450, 7)])
        if len(dict(changes)) == len(changes):  # a value may change and change back
            assert (content is before) == (layout(before) == layout(content))
    for one, other in ((content, earlier), (earlier, content), (content, content), (content, built(order, {}))):
        now, then = entries(one), entries(other)
        differences, removed = one.changes_since(other)
        assert differences == [(key, value) for key, value in now.items() if then.get(key) != value]
        assert removed == [(key, value) for key, value in then.items() if key not in now]


def entries(content: SortedMap[int, str]) -> dict[int, str]:
    return dict(content.items())


NOT_ENDS = [key for key in range(MAX_UNSPLIT + 50) if key not in ENDS]
WHOLE = list(range(2_000))
EXAMPLES: dict[str, tuple[Iterable[int], Changes]] = {
    **{
        f"a sequence of {size} keys grows": ([ENDS[0], *range(ENDS[0] + 1, ENDS[0] + size)], [(20_000, "b")])
        for size in (MAX_UNSPLIT - 1, MAX_UNSPLIT, MAX_UNSPLIT + 1)
    },
    **{
        f"a sequence of {size} keys shrinks": ([*range(ENDS[0], ENDS[0] + size), 20_000], [(20_000, None)])
        for size in (MAX_UNSPLIT - 1, MAX_UNSPLIT, MAX_UNSPLIT + 1)
    },
    "two chunks become small and are joined": ([*NOT_ENDS[:MAX_UNSPLIT], ENDS[0]], [(NOT_ENDS[0], None)]),
    "changes in falling order": (set(WHOLE) - {ENDS[2], ENDS[5]}, [(ENDS[5], "b"), (ENDS[2], "b")]),
    "ends are removed from adjacent chunks and from a later one": (WHOLE, [(ENDS[at], None) for at in (1, 2, 8)]),
    "no effect of the first changes": ([1, 3], [(0, None), (1, "a"), (3, "b")]),
    "no effect of a removal in between": ([1, 3], [(1, "a"), (2, None), (3, "b")]),
}


@pytest.mark.parametrize(("keys", "changes"), EXAMPLES.values(), ids=EXAMPLES)
def test_a_rare_change_equals_a_fresh_build(keys: Iterable[int], changes: Changes):
    model = dict.fromkeys(keys, "a")
    assert layout(built(RISING, model).changed(changes)) == layout(built(RISING, changed(model, changes)))


@given(start=contents, count=st.integers(0, 500) | st.sampled_from(ENDS[:12]).map(lambda end: end + 1))
@example(start=dict.fromkeys(range(2_000), "a"), count=next(end for end in ENDS if end > MAX_UNSPLIT) + 1)
def test_its_head_equals_a_fresh_build(start: dict[int, str], count: int):
    content = built(RISING, start)
    head = content.head(count)
    assert layout(head) == layout(built(RISING, {key: start[key] for key in sorted(start)[:count]}))
    assert (head is content) == (count >= len(start))


def test_a_chunk_ends_at_the_keys_whose_hash_is_a_boundary():
    content = built(RISING, dict.fromkeys(range(1_000), "a"))
    assert list(content.bounds) == [key for key in ENDS if key < 1_000]
    assert [chunk.keys[-1] for chunk in content.chunks[:-1]] == list(content.bounds)
    assert len(built(RISING, dict.fromkeys(range(MAX_UNSPLIT), "a")).chunks) == 1


def test_a_change_copies_one_chunk_and_shares_the_others():
    content = built(RISING, dict.fromkeys(range(10_000), "a"))
    assert not {5_001, 10_001} & set(ENDS)
    for change in ((5_001, "b"), (5_001, None), (10_001, "b")):
        shared = {id(chunk) for chunk in content.chunks} & {id(chunk) for chunk in content.changed([change]).chunks}
        assert len(shared) == len(content.chunks) - 1


@pytest.mark.parametrize("some", [ENDS, [key for key in range(len(ENDS) + 500) if key not in ENDS][: len(ENDS)]])
def test_many_changes_in_one_call_take_linear_time(some: list[int]):
    hashed = 0

    def counted(key: int) -> bytes:
        nonlocal hashed
        hashed += 1
        return octets(key)

    some = random.Random(1).sample(some, len(some))
    content: SortedMap[int, str] = SortedMap.of(KeyOrder(counted), [-1], ["a"])
    for half in (some[::2], some[1::2]):
        content = content.changed([(key, "a") for key in half])
    content = content.changed([(key, None) for key in some])
    assert content.size == 1
    # Of a chunk that is split again all keys are hashed. For each change that would be a million.
    assert hashed < 10 * len(some)


@given(start=contents, steps=steps_of_changes, every=st.integers(1, 3))
def test_what_is_cached_of_a_chunk_is_never_stale(start: dict[int, str], steps: list[Changes], every: int):
    content = built(RISING, start)
    for changes in steps:
        for chunk in content.chunks[::every]:
            chunk.encoded = EncodedPart("".join(one[:1] for one in chunk.values).encode())
        content = content.changed(changes)
        for chunk in content.chunks:
            # It is valid for "ab" instead of "a", but not for "b".
            assert chunk.encoded is None or chunk.encoded.text.decode() == "".join(one[:1] for one in chunk.values)


def test_a_replacement_with_the_same_json_keeps_what_is_cached_of_the_chunk():
    content = built(RISING, dict.fromkeys(range(10), "a"))
    encoded = EncodedPart(b"encoded")
    content.chunks[0].encoded = encoded
    assert content.changed([(3, "ab")]).chunks[0].encoded is encoded
    for change in ((3, "b"), (3, None), (10, "a")):
        assert content.changed([change]).chunks[0].encoded is None


def test_a_value_that_equals_the_stored_one_does_not_replace_it():
    stored, equal = "a" * 1_000, "".join(["a"] * 1_000)
    content = built(RISING, {1: stored})
    assert content.changed([(1, equal)]) is content
    assert equal is not stored
    assert content.changed([(1, equal), (2, "b")]).get(1) is stored


EMPTY: SortedMap[str, int] = SortedMap.of(KeyOrder(str.encode), [], [])


@given(st.lists(st.dictionaries(st.text("ab#0", max_size=3), st.none() | st.integers(0, 9)), max_size=5))
def test_it_changes_like_a_dict(steps: list[dict[str, int | None]]):
    content, model = EMPTY, dict[str, int]()
    for step in steps:
        content = content.changed(step.items())
        model = {key: value for key, value in {**model, **step}.items() if value is not None}
        assert list(content.items()) == sorted(model.items())
        assert content.size == len(model)
        assert content == EMPTY.changed(model.items())
        assert (content == EMPTY) == (not model)
        assert [content.get(key) for key in ("a", "b#")] == [model.get("a"), model.get("b#")]
