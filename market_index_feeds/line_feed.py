"""The source of a feed for all media of lines: it follows a file or a stream, and yields snapshots and deltas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import closing
from threading import Event
from typing import Final

from attrs import evolve

from market_index import Pair
from market_index_feeds.line_content import LineContent, RejectedLine
from market_index_feeds.line_source import LineBatch, LineSource
from market_index_feeds.medium import Delta, Loading, Names, Progress, Rejected, Snapshot, Source, Update

LOG: Final = logging.getLogger(__name__)


class LineFeedSource(Source):
    """A file or stream of lines.

    The content of a file is a snapshot whenever it is opened, and each append is a delta. What a stream delivers up to
    its first idle period is a snapshot, which is whole only at the end of the stream.
    """

    record = "lines"

    def __init__(self, lines: LineSource, new_content: Callable[[], LineContent]) -> None:
        """`new_content` creates the reader of the lines of one file, or of the stream."""
        super().__init__(lines.name)
        self.followed_by_many: bool = not lines.is_stream
        self._lines = lines
        self._new_content = new_content
        self._files = 0
        # Kept between calls of `updates`: a stream delivers a batch again if its update was not delivered.
        self._content = new_content()
        self._offset = 0

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield a snapshot of each file, and a delta for each batch of appended lines."""
        is_loading = False
        seen: tuple[int, bool] | None = None
        unfinished: Pair | Names = Names.NONE
        with closing(self._lines.batches(stop)) as batches:
            for batch in batches:
                if batch.is_start:
                    is_loading, self._content, self._offset = True, self._new_content(), 0
                if rejected := self._read(batch):
                    yield Loading(rejected=rejected)
                state = batch.offset, batch.is_caught_up
                if state != seen or batch.is_end:
                    seen, unfinished = state, self._content.unfinished(batch)
                if is_loading and progress is not None:
                    progress(*((0, 0) if self._lines.is_stream else (batch.offset, batch.size)))
                if is_loading and not batch.is_caught_up:
                    continue
                if batch.is_end:
                    self._log_uncommitted()
                update = self._update(batch, unfinished, is_loading=is_loading)
                yield update
                is_loading = is_loading and not isinstance(update, Snapshot)
                self._content.deliver()

    def _read(self, batch: LineBatch) -> list[Rejected]:
        """Read the lines of a batch, unless they were read before, and return the rejected ones."""
        if batch.offset == self._offset and not batch.is_end:
            return []
        self._offset = batch.offset
        return [one.as_record() for one in self._content.read(batch) if isinstance(one, RejectedLine)]

    def _update(self, batch: LineBatch, unfinished: Pair | Names, *, is_loading: bool) -> Snapshot | Delta:
        content, has_more = self._content, self._lines.is_stream and not batch.is_end
        changes = content.changes()
        changes = evolve(
            changes,
            unfinished=unfinished,
            is_whole=changes.is_whole and (content.knows_all_pairs or not has_more),
            has_more=has_more,
            problem=batch.problem,
            unknown=content.problem,
        )
        # The content of a replaced file stays live until the content of the new file is known.
        is_waiting = self._files > 0 and content.problem is not None and not changes.is_publication
        return self._snapshot(batch, changes) if is_loading and not is_waiting else changes

    def _snapshot(self, batch: LineBatch, changes: Delta) -> Snapshot:
        self._files += 1
        content, unfinished = self._content, changes.unfinished
        if unfinished is not Names.NONE and batch.unfinished is not None:
            LOG.info("%s: line %d waits for its newline", self.name, batch.unfinished.number)
        if content.pending:
            LOG.info("%s: %d %ss wait for a %s", self.name, content.pending, content.pending_record, content.commit)
        return Snapshot(
            books=changes.books,
            rejected=changes.rejected,
            rejected_names=changes.rejected_names,
            unfinished=unfinished,
            freshness=changes.freshness,
            is_publication=changes.is_publication,
            books_read=changes.books_read,
            is_whole=changes.is_whole,
            has_more=changes.has_more,
            problem=changes.problem,
            unknown=changes.unknown,
            is_blank=not changes.books and not changes.is_publication,
            reload_reason="it was replaced or truncated" if self._files > 1 else None,
        )

    def _log_uncommitted(self) -> None:
        """Log how many records of a stream are not visible at its end."""
        content = self._content
        if pending := content.pending:
            record, commit = content.pending_record, content.commit
            LOG.warning("%s: %d %ss after the last %s are not served", self.name, pending, record, commit)
