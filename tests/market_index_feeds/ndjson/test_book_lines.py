"""Order books that are read once, as they come."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from market_index_feeds import BookStream, FeedError, line_source, open_book_stream
from market_index_feeds.line_source import LineStream
from tests.market_index_feeds.made_up import pair
from tests.market_index_feeds.ndjson.lines import line


def test_a_file_can_be_read_as_a_stream(path: Path, caplog: pytest.LogCaptureFixture):
    path.write_bytes(line(1) + b"nonsense\n" + line(2)[:-1])
    stream = open_book_stream(str(path))
    batch, last = stream.batches()
    assert ([one.pair for one in batch.books], [one.number for one in batch.rejected]) == ([pair(1)], [2])
    assert batch.offset == last.offset == stream.size == path.stat().st_size
    assert [(one.number, one.reason, one.pair) for one in last.rejected] == [
        (3, "it was not finished by a newline", pair(2))
    ]
    assert (stream.books, stream.rejected) == (1, 2)
    assert f"{path} line 2 rejected: must be JSON" in caplog.text


def test_what_cannot_be_read_is_an_error():
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(FeedError, match="a closed pipe cannot be read: Bad file descriptor"):
        list(BookStream(LineStream("a closed pipe", reading)).batches())
    os.close(writing)


def test_blank_lines_count_as_read(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(line_source, "_CHUNK_BYTES", len(line(1)))
    path.write_bytes(line(1) + b"\n \r\n")
    stream = open_book_stream(str(path))
    assert [(len(batch.books), batch.offset) for batch in stream.batches()] == [
        (1, len(line(1))),
        (0, path.stat().st_size),
    ]
