"""Chunks of sorted keys: whatever is put and taken, they are in order, and neither too small nor too large."""

from __future__ import annotations

from bisect import bisect_left, insort

from hypothesis import given
from hypothesis import strategies as st

from market_index.sorted_chunks import bounds_between, cut, put

SIZE = 4


@given(
    start=st.sets(st.integers(0, 200), max_size=60),
    runs=st.lists(st.tuples(st.booleans(), st.integers(0, 200), st.integers(1, 40)), max_size=12),
)
def test_they_hold_what_a_sorted_list_holds(start: set[int], runs: list[tuple[bool, int, int]]):
    model = sorted(start)
    chunks = cut(model.copy(), [-key for key in model], SIZE)
    bounds = bounds_between(chunks)
    for there, first, count in runs:
        for key in range(first, first + count):
            before = [(keys.copy(), values.copy()) for keys, values in chunks]
            at = bisect_left(bounds, key)
            keys, values = chunks[at]
            position = bisect_left(keys, key)
            assert (key in model) == (position < len(keys) and keys[position] == key)
            if there == (key in model):
                continue
            keys, values = keys.copy(), values.copy()
            if there:
                keys.insert(position, key)
                values.insert(position, -key)
                insort(model, key)
            else:
                del keys[position], values[position]
                model.remove(key)
            following = chunks.copy()
            bounds = put(following, bounds, at, (keys, values), SIZE)
            assert chunks == before
            chunks = following
            assert [one for keys, _ in chunks for one in keys] == model
            assert [one for _, values in chunks for one in values] == [-one for one in model]
            assert all(SIZE <= 4 * len(keys) <= 8 * SIZE for keys, _ in chunks[:-1])
            assert len(chunks[-1][0]) <= 2 * SIZE
            assert len(bounds) == len(chunks) - 1
            for (keys, _), bound, (behind, _) in zip(chunks, bounds, chunks[1:], strict=False):
                assert keys[-1] <= bound
                assert not behind or bound < behind[0]
