"""The mappings in the persistent structure, compared with a dict."""

from __future__ import annotations

from operator import eq
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index.chunked import BOUNDARY_MASK, Chunk, KeyOrder
from market_index.tables import TABLES, Table, WideTable, text_hashes

EMPTY: Table[str, int] = Table(KeyOrder(text_hashes, is_same=eq), Chunk([], []))
EMPTY_WIDE: WideTable[int] = WideTable()
# Many keys at first, so that there are several chunks. Each of the others ends a chunk.
ENDS = [text for text in map(str, range(10_000)) if not crc32(text.encode()) & BOUNDARY_MASK]
starts = st.sampled_from([0, 50, 500]).map(lambda count: {f"{number:x}": 1 for number in range(count)}) | st.just(
    dict.fromkeys(ENDS, 1)
)
keys = st.sampled_from(list(map(str, range(200)))) | st.text("ab#0", max_size=3) | st.sampled_from(ENDS)
# None alone removes: 0 is a value.
changes = st.lists(st.lists(st.tuples(keys, st.none() | st.integers(0, 9)), max_size=150), max_size=5)


@given(starts, changes)
def test_both_change_like_a_dict(model: dict[str, int], steps: list[list[tuple[str, int | None]]]):
    table, wide = EMPTY.changed(model.items()), EMPTY_WIDE.changed(model)
    for step in steps:
        before, as_it_was = (table, wide), dict(model)
        for key, value in step:
            model.pop(key, None)
            if value is not None:
                model[key] = value
        table, wide = table.changed(step), wide.changed(dict(step))
        assert [dict(one) for one in before] == [as_it_was, as_it_was]
        assert dict(table) == dict(wide) == model
        assert list(table) == list(wide) == sorted(model)
        assert len(table) == len(wide) == len(model)
        fresh = EMPTY.changed(model.items())
        assert table.has_same_content(fresh)
        assert wide.has_same_content(EMPTY_WIDE.changed(model))
        assert table.has_same_content(before[0]) == wide.has_same_content(before[1]) == (model == as_it_was)


values = st.builds(object)


@given(
    st.lists(st.dictionaries(keys, st.none() | values, max_size=150), max_size=4),
    st.lists(st.dictionaries(keys, st.none() | values, max_size=150), max_size=4),
)
def test_the_difference_of_two_wide_tables_is_that_of_two_dicts(
    before: list[dict[str, object]], after: list[dict[str, object]]
):
    table: WideTable[object] = WideTable()
    start: dict[str, object | None] = dict.fromkeys(ENDS, "first")
    versions, models = [table], [dict[str, object]()]
    for step in (start, *before, *after):
        following = {key: value for key, value in {**models[-1], **step}.items() if value is not None}
        versions.append(versions[-1].changed(step))
        models.append(following)
    for earlier, later in ((0, -1), (-1, 0), (len(before), -1), (-1, len(before)), (-1, -1)):
        changed, removed = versions[later].changes_since(versions[earlier])
        now, then = models[later], models[earlier]
        assert sorted(map(id, changed)) == sorted(id(now[key]) for key in now if then.get(key) is not now[key])
        assert sorted(map(id, removed)) == sorted(id(then[key]) for key in then.keys() - now)


def test_an_empty_table_is_a_value():
    nested: Table[str, Table[str, int]] = Table(KeyOrder(text_hashes, is_same=eq), Chunk([], []))
    for table in (nested.changed([("a", EMPTY)]), nested.changed([("a", EMPTY), ("b", EMPTY)]).changed([("b", None)])):
        assert dict(table) == {"a": EMPTY}


def test_a_change_without_effect_returns_the_same_wide_table():
    wide = EMPTY_WIDE.changed({"a": 1, "b": 2})
    assert wide.changed({"a": 1, "c": None}) is wide
    assert EMPTY_WIDE.changed({"a": None}) is EMPTY_WIDE


def test_a_change_of_a_wide_table_shares_all_other_tables():
    wide = EMPTY_WIDE.changed(dict.fromkeys(map(str, range(1_000)), 1))
    changed = wide.changed({"7": 2})
    differing = [at for at in range(TABLES) if wide._tables[at] is not changed._tables[at]]
    assert differing == [crc32(b"7") >> 24]


def test_an_absent_key_is_a_key_error():
    for mapping in (EMPTY, EMPTY_WIDE, EMPTY.changed([("a", 1)])):
        assert "b" not in mapping
        assert mapping.get("b") is None
        assert mapping.at("b") is None
        with pytest.raises(KeyError) as missing:
            mapping["b"]
        assert missing.value.args == ("b",)


def test_the_hash_of_a_text_is_the_same_in_every_process():
    assert list(text_hashes(["a", "é"])) == [crc32(b"a"), crc32("é".encode())]
    assert len(EMPTY.changed([(str(number), 1) for number in range(1_000)]).chunks) > 5
