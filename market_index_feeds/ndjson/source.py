"""Files and streams of order books, one a line, as a source of a feed."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import closing
from threading import Event
from typing import Final

from market_index import OrderBook, Pair
from market_index_feeds.line_source import LineBatch, LineSource, open_lines
from market_index_feeds.medium import Delta, Loading, Names, Progress, Rejected, Snapshot, Source, Update
from market_index_feeds.ndjson.book_lines import pair_named_in, read_books

LOG: Final = logging.getLogger(__name__)


class NdjsonSource(Source):
    """Lines of order books.

    A file is a snapshot whenever it is opened, and each append is a delta. A stream is a snapshot at its first pause,
    and is whole at its end.
    """

    record = "lines"

    def __init__(self, lines: LineSource) -> None:
        super().__init__(lines.name)
        self.followed_by_many: bool = not lines.is_stream
        self._lines = lines
        self._files = 0

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield a snapshot of each file, and a delta of each batch of lines that is appended."""
        reading: _Reading | None = None
        seen: tuple[int, bool] | None = None
        unfinished: Pair | Names = Names.NONE
        with closing(self._lines.batches(stop)) as batches:
            for batch in batches:
                state = batch.offset, batch.is_caught_up
                if state != seen or batch.is_end:
                    seen, unfinished = state, _unfinished(batch)
                if batch.is_start:
                    reading = _Reading()
                if reading is None:
                    yield self._delta(batch, unfinished)
                    continue
                reading.add(batch)
                if reading.rejected:
                    yield Loading(rejected=reading.reported())
                if progress is not None:
                    progress(*((0, 0) if self._lines.is_stream else (batch.offset, batch.size)))
                if batch.is_caught_up:
                    self._files += 1
                    yield self._snapshot(reading, batch, unfinished)
                    reading = None

    def _delta(self, batch: LineBatch, unfinished: Pair | Names) -> Delta:
        reading = _Reading()
        reading.add(batch)
        return Delta(
            books=reading.books.values(),
            rejected=reading.rejected,
            unfinished=unfinished,
            books_read=reading.books_read,
            is_whole=self._is_whole(batch),
            problem=batch.problem,
        )

    def _snapshot(self, reading: _Reading, batch: LineBatch, unfinished: Pair | Names) -> Snapshot:
        if unfinished is not Names.NONE and batch.unfinished is not None:
            LOG.info("%s line %d waits for its newline", self.name, batch.unfinished.number)
        return Snapshot(
            books=reading.books.values(),
            rejected_names=reading.rejected_names,
            unfinished=unfinished,
            books_read=reading.books_read,
            is_whole=self._is_whole(batch),
            is_blank=not (reading.books or reading.rejected_names) and unfinished is Names.NONE,
            because="it was replaced or truncated" if self._files > 1 else None,
        )

    def _is_whole(self, batch: LineBatch) -> bool:
        return batch.is_end or not self._lines.is_stream


class _Reading:
    """What was read of some batches. Of several books of one pair the last counts."""

    def __init__(self) -> None:
        self.books: dict[Pair, OrderBook] = {}
        self.rejected: list[Rejected] = []
        self.rejected_names: set[Pair | Names] = set()
        self.books_read = 0

    def add(self, batch: LineBatch) -> None:
        """Add the lines of one more batch."""
        read = read_books(batch)
        self.books.update((book.pair, book) for book in read.books)
        self.rejected += [line.as_record() for line in read.rejected]
        self.books_read += len(read.books)

    def reported(self) -> list[Rejected]:
        """Return the lines rejected since the last call; of these only the names are kept."""
        rejected, self.rejected = self.rejected, []
        self.rejected_names.update(line.names for line in rejected)
        return rejected


def _unfinished(batch: LineBatch) -> Pair | Names:
    """Return what the lines that are not read yet may name."""
    if batch.unfinished is None:
        return Names.ANY
    if batch.is_end or batch.unfinished.text == b"":
        return Names.NONE
    return pair_named_in(batch.unfinished) or Names.ANY


def open_ndjson_source(source: str) -> NdjsonSource:
    """Open a file or a pipe by its path, or standard input by `-`. Raises `FeedError`."""
    return NdjsonSource(open_lines(source))
