"""Reading recordings: what is a change, what is rejected, and what is ignored."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import Freshness, MarketIndex
from market_index.strategies import market_indexes
from market_index_feeds import FeedError, replay
from market_index_feeds.line_source import CHUNK_BYTES
from market_index_feeds.ndjson.recorder import change_lines
from market_index_feeds.ndjson.recording import LACKS_COMMITS, ReadBytes, RecordedChange, read_recording
from market_index_feeds.regular_files import open_regular
from tests.market_index_feeds.made_up import book
from tests.market_index_feeds.ndjson.lines import commit, line, retraction
from tests.market_index_feeds.ndjson.recordings import START, recorded, replayed


def test_each_commit_line_ends_a_change(path: Path):
    path.write_bytes(
        line(1, "1") + line(2, "2") + recorded(0, "slot 1") + retraction(1) + line(2, "3") + recorded(1.5) + recorded(1)
    )
    assert replayed(path) == [
        (0, {1: "1", 2: "2"}, "slot 1"),
        (1.5, {2: "3"}, None),
        (1, {2: "3"}, None),
    ]


@pytest.mark.parametrize("tail", [line(9), line(9)[:-1], b"{", b"nonsense"])
def test_what_follows_the_last_commit_line_is_ignored(path: Path, tail: bytes):
    path.write_bytes(line(1, "1") + recorded(0) + tail)
    assert replayed(path) == [(0, {1: "1"}, None)]


@given(st.lists(market_indexes(max_pairs=4), min_size=1, max_size=6))
def test_arbitrary_changes_are_replayed_as_the_same_indexes(
    tmp_path_factory: pytest.TempPathFactory, indexes: list[MarketIndex]
):
    path = tmp_path_factory.getbasetemp() / f"arbitrary-{os.getpid()}.ndjson"
    before = MarketIndex()
    expected: list[tuple[int, MarketIndex, Freshness]] = []
    with path.open("wb") as file:
        for number, index in enumerate(indexes):
            lines = change_lines(before, index, START + timedelta(seconds=number))
            assert bool(lines) == (index != before or index.freshness != before.freshness)
            if lines:
                file.write(lines)
                expected.append((number, index, index.freshness))
            before = index
    if not expected:
        with pytest.raises(FeedError):
            list(replay(path))
        return
    found = [((time - START).total_seconds(), index, index.freshness) for time, index in replay(path)]
    assert found == expected


def test_an_equal_book_is_not_a_change():
    assert change_lines(MarketIndex([book(1, 1)]), MarketIndex([book(1, 1)]), START) == b""
    lines = change_lines(MarketIndex([book(1, 1), book(2, 1)]), MarketIndex([book(1, 1), book(2, 2)]), START)
    assert lines.startswith(line(2, "2") + b'{"as_of":null,')


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", LACKS_COMMITS),
        (line(1), LACKS_COMMITS),
        (line(1) + commit("slot 1"), "line 2 rejected: recorded_at: missing"),
        (recorded(0) + b"nonsense\n", "line 2 rejected: must be JSON"),
        (recorded(0) + line(1).replace(b"[]", b"0") + recorded(1), "line 2 rejected: bids: must be an array"),
        (recorded(0) + commit(7, recorded_at="2026-11-22T04:17:03Z"), "line 2 rejected: as_of: must be a string"),
    ],
)
def test_a_file_that_is_no_recording_is_an_error(path: Path, content: bytes, reason: str):
    path.write_bytes(content)
    with pytest.raises(FeedError) as caught:
        list(replay(path))
    assert str(caught.value).startswith(f"{path} cannot be replayed: {reason}")


@pytest.mark.parametrize("name", ["nowhere.ndjson", "", "a\0b"])
def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path, name: str):
    with pytest.raises(FeedError, match=r"cannot be replayed: (No such file|it must be a regular file|embedded null)"):
        list(replay(f"{tmp_path}/{name}"))


def test_the_offset_of_a_change_is_the_end_of_its_commit_line(path: Path):
    changes = [b"\xef\xbb\xbf" + line(1) + recorded(0), b"\r\n" + recorded(1), b"x" * CHUNK_BYTES + b"\n" + recorded(2)]
    path.write_bytes(b"".join(changes) + line(2))
    with open_regular(path) as file:
        found = list(read_recording(file))
    ends = [one.offset for one in found if isinstance(one, RecordedChange)]
    assert ends == [len(b"".join(changes[: count + 1])) for count in range(3)]
    assert found[-1] == ReadBytes(path.stat().st_size, path.stat().st_size)
