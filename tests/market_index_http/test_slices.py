"""Slices contain all parts in order, and a change of one part affects few of them."""

from __future__ import annotations

import gzip

from hypothesis import given
from hypothesis import strategies as st

from market_index import wire
from market_index_http.compression import GZIP
from market_index_http.slices import MAX_SLICE_BYTES, PLAIN, Group, Slices, groups_of


def parts_of(count: int, start: int = 0) -> list[wire.EncodedPart]:
    return [wire.EncodedPart(b"%08d" % number) for number in range(start, start + count)]


def small_groups(parts: list[wire.EncodedPart]) -> list[Group]:
    return groups_of(parts, min_bytes=128, max_bytes=512)


def sliced(parts: list[wire.EncodedPart]) -> Slices:
    return Slices(small_groups(parts))


@given(st.lists(st.binary(max_size=3).map(wire.EncodedPart), min_size=1, max_size=600))
def test_slices_contain_all_parts_in_order(parts: list[wire.EncodedPart]):
    content, groups = sliced(parts), small_groups(parts)
    assert b"".join(content.texts()) == wire.text_of(parts)
    assert len(content) == len(wire.text_of(parts))
    assert gzip.decompress(b"".join(GZIP.slices(content, groups).texts())) == wire.text_of(parts)
    assert all(128 <= len(wire.text_of(group)) <= 512 for group in groups[:-1])


def test_a_new_part_changes_few_slices():
    parts = parts_of(20_000)
    before = sliced(parts)
    known = set(before.slices)
    for at in range(0, 20_000, 997):
        after = sliced([*parts[:at], wire.EncodedPart(b"new"), *parts[at:]])
        assert sum(one not in known for one in after.slices) <= 8


def test_a_response_keeps_the_parts_but_not_the_slices():
    parts = parts_of(300)
    content = sliced(parts)
    assert sliced(parts).slices[0] is content.slices[0]
    sending = content.texts()
    first = next(sending)
    assert small_groups(parts)[1] in PLAIN
    del content
    assert small_groups(parts)[1] not in PLAIN
    assert b"".join((first, *sending)) == wire.text_of(parts)


def test_no_message_is_longer_than_the_limit():
    tenth, sizes = MAX_SLICE_BYTES // 10, [1, 25, 1, 10, 12]
    content = Slices(groups_of([wire.EncodedPart(b"x" * tenth * size) for size in sizes]))
    assert [len(one.text) // tenth for one in content.slices] == sizes
    assert max(len(text) for text in content.texts()) == MAX_SLICE_BYTES
