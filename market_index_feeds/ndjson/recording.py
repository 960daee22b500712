"""Reads recordings: files of lines in which every commit line has the time of its recording.

What follows the last commit line is not part of a recording: its recorder is about to commit it, or was killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from gzip import GzipFile
from io import FileIO
from os import PathLike, fspath
from pathlib import Path
from typing import Final, TypeAlias

from attrs import frozen

from market_index import Freshness, MarketIndex
from market_index.wire import CommitLine
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.line_content import RejectedLine
from market_index_feeds.line_source import CHUNK_BYTES, LineBatch, LineCutter
from market_index_feeds.medium import Progress
from market_index_feeds.ndjson.book_lines import contents_of
from market_index_feeds.ndjson.commits import Changes
from market_index_feeds.opened import shown_name
from market_index_feeds.regular_files import open_regular

SAMPLE: Final = "sample:"
"""The name of the recording in this package."""

_SAMPLE_FILE: Final = Path(__file__).parents[1] / "sample" / "recording.ndjson.gz"

LACKS_COMMITS: Final = "it must contain a commit line with recorded_at, got none (market-index record writes them)"
"""Why a file is not a recording."""


class NotRecorded(Exception):
    """A file is not a recording, or contains a line that is rejected. The text completes an error message."""


@frozen
class RecordedChange:
    """The changes of one commit line of a recording.

    `recorded_at` is wall-clock time of the recorder. `offset` is the number of bytes up to the end of the line.
    """

    recorded_at: datetime
    freshness: Freshness
    changes: Changes
    offset: int


@frozen
class ReadBytes:
    """How many bytes of a recording were read so far, and its size."""

    offset: int
    size: int


Reading: TypeAlias = RecordedChange | RejectedLine | ReadBytes


def open_recording(name: str) -> FileIO | GzipFile:
    """Open a recording by its path, or that of this package by `sample:`. Raises `OSError` or `ValueError`."""
    return GzipFile(_SAMPLE_FILE) if name == SAMPLE else open_regular(Path(name))


def read_recording(file: FileIO | GzipFile) -> Iterator[Reading]:
    """Yield the changes and the rejected lines of an open recording, and after each read how far it was read.

    A commit line without `recorded_at` is rejected. The memory depends on the largest change, not on the size.
    Raises `OSError`.
    """
    cutter, changes, offset = LineCutter(), Changes(), 0
    while chunk := file.read(CHUNK_BYTES):
        for line in cutter.feed(chunk):
            for content in contents_of(LineBatch([line], None, cutter.offset)):
                if isinstance(content, CommitLine) and content.recorded_at is not None:
                    yield RecordedChange(content.recorded_at, content.freshness, changes, cutter.offset)
                    changes = Changes()
                elif isinstance(content, CommitLine):
                    yield RejectedLine(line.number, "recorded_at: missing")
                else:
                    changes.add(content)
                    if isinstance(content, RejectedLine):
                        yield content
        offset += len(chunk)
        yield ReadBytes(offset, os.fstat(file.fileno()).st_size)


def changes_of(file: FileIO | GzipFile, progress: Progress | None = None) -> Iterator[RecordedChange]:
    """Yield the changes of an open recording.

    Raises:
        NotRecorded: A line is rejected, or there is no change.
        OSError: The file cannot be read.
    """
    is_recorded = False
    for one in read_recording(file):
        if isinstance(one, RejectedLine):
            raise NotRecorded(f"line {one.number} rejected: {one.reason}")
        if isinstance(one, RecordedChange):
            is_recorded = True
            yield one
        elif progress is not None:
            progress(one.offset, one.size)
    if not is_recorded:
        raise NotRecorded(LACKS_COMMITS)


def replay(recording: str | PathLike[str]) -> Iterator[tuple[datetime, MarketIndex]]:
    r"""Yield the index after each change of a recording, with the time of its recording, as fast as they are read.

    `recording` is its path, or `sample:`. The times are wall-clock time of the recorder, in UTC. The freshness of an
    index is the recorded one. Indexes share what has not changed, so all of them can be kept.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> lines = (
    ...     '{"base": "ADA", "quote": "%s:", "spot": "0.5"}\n' % ("00" * 28)
    ...     + '{"as_of": "slot 7", "recorded_at": "2026-11-22T04:17:03Z"}\n'
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "recording.ndjson")
    ...     _ = path.write_text(lines)
    ...     [(time.hour, index, index.as_of) for time, index in replay(path)]
    [(4, <MarketIndex: 1 pairs>, 'slot 7')]

    Raises:
        FeedError: The file cannot be read, is not a recording, or contains a line that is rejected. A backtest must not
            skip a line: the indexes after it would have a price that is no longer valid.
    """
    path, index = fspath(recording), MarketIndex()
    try:
        with open_recording(path) as file:
            for one in changes_of(file):
                index = index.without(*one.changes.removed).with_books(*one.changes.books.values())
                index = index.with_freshness(one.freshness)
                yield one.recorded_at, index
    except (NotRecorded, OSError, ValueError) as error:
        raise FeedError(f"{shown_name(path)} cannot be replayed: {reason_of(error)}") from None
