"""Files and streams of order books, one a line, as a source of a feed."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import closing
from threading import Event
from typing import Final

from market_index import Pair
from market_index_feeds.line_source import LineBatch, LineSource, open_lines
from market_index_feeds.medium import Delta, Loading, Names, Progress, Rejected, Snapshot, Source, Update
from market_index_feeds.ndjson.book_lines import RejectedLine, contents_of, names_of
from market_index_feeds.ndjson.commits import Changes, Commits

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
        # What was read, beyond `updates`: a stream delivers a batch again if what was read of it was not delivered.
        self._commits = Commits()
        self._offset = 0

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield a snapshot of each file, and a delta of each batch of lines that is appended."""
        is_loading = False
        seen: tuple[int, bool] | None = None
        unfinished: Pair | Names = Names.NONE
        with closing(self._lines.batches(stop)) as batches:
            for batch in batches:
                state = batch.offset, batch.is_caught_up
                if state != seen or batch.is_end:
                    seen, unfinished = state, _unfinished(batch)
                if batch.is_start:
                    is_loading, self._commits, self._offset = True, Commits(), 0
                if rejected := self._read(batch):
                    yield Loading(rejected=rejected)
                if is_loading and progress is not None:
                    progress(*((0, 0) if self._lines.is_stream else (batch.offset, batch.size)))
                if is_loading and not batch.is_caught_up:
                    continue
                if batch.is_end:
                    self._log_uncommitted()
                # An unfinished line after a commit line is pending.
                names = Names.NONE if self._commits.is_committed else unfinished
                yield self._snapshot(batch, names) if is_loading else self._delta(batch, names)
                is_loading, self._commits.visible = False, Changes()

    def _read(self, batch: LineBatch) -> list[Rejected]:
        """Read the lines of a batch, unless that was done before, and return those that are rejected."""
        if batch.offset == self._offset and not batch.is_end:
            return []
        self._offset = batch.offset
        rejected = []
        for content in contents_of(batch):
            self._commits.add(content)
            if isinstance(content, RejectedLine):
                rejected.append(content.as_record())
        return rejected

    def _delta(self, batch: LineBatch, unfinished: Pair | Names) -> Delta:
        visible = self._commits.visible
        return Delta(
            books=visible.books.values(),
            rejected_names=visible.rejected,
            unfinished=unfinished,
            freshness=visible.freshness,
            is_publication=visible.freshness is not None,
            books_read=visible.books_read,
            is_whole=self._is_whole(batch),
            problem=batch.problem,
        )

    def _snapshot(self, batch: LineBatch, unfinished: Pair | Names) -> Snapshot:
        self._files += 1
        if unfinished is not Names.NONE and batch.unfinished is not None:
            LOG.info("%s line %d waits for its newline", self.name, batch.unfinished.number)
        if pending := self._commits.pending.books_read:
            LOG.info("%s: %d order books wait for a commit line", self.name, pending)
        visible = self._commits.visible
        has_content = visible.books or visible.rejected or self._commits.is_committed
        return Snapshot(
            books=visible.books.values(),
            rejected_names=visible.rejected,
            unfinished=unfinished,
            freshness=visible.freshness,
            is_publication=visible.freshness is not None,
            books_read=visible.books_read,
            is_whole=self._is_whole(batch),
            is_blank=not has_content and unfinished is Names.NONE,
            because="it was replaced or truncated" if self._files > 1 else None,
        )

    def _is_whole(self, batch: LineBatch) -> bool:
        return batch.is_end or not self._lines.is_stream

    def _log_uncommitted(self) -> None:
        """Log how many books of a stream that has ended are not visible."""
        if pending := self._commits.pending.books_read:
            LOG.warning("%s: %d order books after its last commit line are not served", self.name, pending)


def _unfinished(batch: LineBatch) -> Pair | Names:
    """Return what the lines that are not read yet may name."""
    if batch.unfinished is None:
        return Names.ANY
    if batch.is_end or batch.unfinished.text == b"":
        return Names.NONE
    return names_of(batch.unfinished)


def open_ndjson_source(source: str) -> NdjsonSource:
    """Open a file or a pipe by its path, or standard input by `-`. Raises `FeedError`."""
    return NdjsonSource(open_lines(source))
