"""Slices contain all parts in order, and a change of one part affects few of them."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from market_index.wire import internal
from market_index_http import slices
from market_index_http.compression import gzip_slices
from market_index_http.slices import PLAIN, Slices, groups_of


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MIN_SLICE_BYTES", 128)
    monkeypatch.setattr(slices, "MAX_SLICE_BYTES", 512)


def parts_of(count: int, start: int = 0) -> list[internal.EncodedPart]:
    return [internal.EncodedPart(b"%08d" % number) for number in range(start, start + count)]


def sliced(parts: list[internal.EncodedPart]) -> Slices:
    return Slices(groups_of(parts))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=3).map(internal.EncodedPart), min_size=1, max_size=600))
def test_slices_contain_all_parts_in_order(parts: list[internal.EncodedPart]):
    content, groups = sliced(parts), groups_of(parts)
    assert b"".join(content.texts()) == internal.text_of(parts)
    assert len(content) == len(internal.text_of(parts))
    assert gzip.decompress(b"".join(gzip_slices(content, groups).texts())) == internal.text_of(parts)
    assert all(128 <= len(internal.text_of(group)) <= 512 for group in groups[:-1])


def test_a_new_part_changes_few_slices():
    parts = parts_of(20_000)
    before = sliced(parts)
    known = set(before.slices)
    for at in range(0, 20_000, 997):
        after = sliced([*parts[:at], internal.EncodedPart(b"new"), *parts[at:]])
        assert sum(one not in known for one in after.slices) <= 8


def test_a_response_keeps_the_parts_but_not_the_slices():
    parts = parts_of(300)
    content = sliced(parts)
    assert sliced(parts).slices[0] is content.slices[0]
    sending = content.texts()
    first = next(sending)
    assert groups_of(parts)[1] in PLAIN
    del content
    assert groups_of(parts)[1] not in PLAIN
    assert b"".join((first, *sending)) == internal.text_of(parts)


def test_no_message_is_longer_than_the_limit():
    content = sliced([internal.EncodedPart(b"x" * size) for size in (100, 1_300, 100, 512, 600)])
    assert [len(one.text) for one in content.slices] == [100, 1_300, 100, 512, 600]
    assert [len(text) for text in content.texts()] == [100, 512, 512, 276, 100, 512, 512, 88]
