"""Streams of order books that are read once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from market_index import Freshness, MarketIndex
from market_index_feeds import BookStream, FeedError, line_source, open_book_stream
from market_index_feeds.line_source import LineStream
from market_index_feeds.ndjson.commits import Commits
from tests.market_index_feeds.made_up import pair, spots
from tests.market_index_feeds.ndjson.lines import commit, line

BAD = line(1).replace(b"[]", b"0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "books.ndjson"


def test_a_file_can_be_read_as_a_stream(path: Path, caplog: pytest.LogCaptureFixture):
    path.write_bytes(line(1) + b"nonsense\n" + line(2)[:-1])
    stream = open_book_stream(str(path))
    batch, last = stream.batches()
    assert ([one.pair for one in batch.books], [one.number for one in batch.rejected]) == ([pair(1)], [2])
    assert batch.offset == last.offset == stream.size == path.stat().st_size
    assert [(one.number, one.reason, one.pair) for one in last.rejected] == [(3, "must end with a newline", pair(2))]
    assert (stream.books, stream.rejected) == (1, 2)
    assert f"{path} line 2 rejected: must be JSON" in caplog.text


def test_an_unreadable_stream_is_an_error():
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(FeedError, match="a closed pipe cannot be read: Bad file descriptor"):
        list(BookStream(LineStream("a closed pipe", reading), Commits()).batches())
    os.close(writing)


def test_blank_lines_count_as_read(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(line_source, "_CHUNK_BYTES", len(line(1)))
    path.write_bytes(line(1) + b"\n \r\n")
    stream = open_book_stream(str(path))
    assert [(len(batch.books), batch.offset) for batch in stream.batches()] == [
        (1, len(line(1))),
        (0, path.stat().st_size),
    ]


def test_a_commit_line_ends_a_batch_and_later_books_wait_for_the_next(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(line_source, "_CHUNK_BYTES", 1)
    content = line(1, "1") + line(2, "2") + commit("slot 1") + line(1, "3") + BAD + line(1, "4") + commit(None)
    path.write_bytes(content + commit("slot 3") + line(1, "5") + line(2, "5"))
    stream = open_book_stream(str(path))
    batches = [batch for batch in stream.batches() if batch.books or batch.rejected or batch.commit]
    assert [(spots(MarketIndex(one.books)), [bad.number for bad in one.rejected], one.commit) for one in batches] == [
        ({1: "1"}, [], None),
        ({2: "2"}, [], None),
        ({}, [], Freshness("slot 1")),
        ({}, [5], None),
        ({1: "4"}, [], Freshness()),
        ({}, [], Freshness("slot 3")),
    ]
    assert (stream.books, stream.rejected, stream.uncommitted) == (4, 1, 2)


@pytest.mark.parametrize(
    ("content", "is_current"),
    [
        (BAD + line(1) + commit(None), True),
        (line(1) + BAD + commit(None), False),
        (commit(None) + line(1) + BAD + commit(None), False),
        (commit(None) + BAD + commit(None) + line(1) + commit(None), True),
        (commit(None) + BAD, True),
        (commit(7), True),
        (b"nonsense\n" + line(1), False),
    ],
)
def test_a_rejected_line_may_have_contained_a_newer_book(path: Path, content: bytes, is_current: bool):
    path.write_bytes(content)
    stream = open_book_stream(str(path))
    assert stream.is_current
    list(stream.batches())
    assert stream.is_current == is_current
