"""The source of a feed for all media of lines: it follows a file or a stream."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import closing
from threading import Event
from typing import Final

from attrs import evolve

from market_index_feeds.line_content import LineContent, RejectedLine
from market_index_feeds.line_kind import require_json, require_kind
from market_index_feeds.line_source import LineBatch, LineSource
from market_index_feeds.medium import Progress, Rejected, Source, Unnamed, Update

LOG: Final = logging.getLogger(__name__)


class LineFeedSource(Source):
    """A file or stream of lines.

    The whole content of a file is read whenever it is opened, and each append is an update. Of a stream, what it
    delivers up to its first idle period counts as its whole content.
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
        self._is_blank = True
        # Whether the first lines of the source were checked.
        self._is_recognized = False

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield the whole content of each file, and the changes of each batch of appended lines."""
        is_loading = False
        with closing(self._lines.batches(stop)) as batches:
            for batch in batches:
                if batch.is_start:
                    is_loading = True
                    if not self._lines.is_stream:
                        self._content, self._offset, self._is_blank = self._new_content(), 0, True
                self._recognize(batch)
                if rejected := self._read(batch):
                    yield Update(rejected=rejected, is_loading=True)
                if is_loading and progress is not None:
                    progress(batch.offset if batch.size else 0, batch.size)
                if is_loading and not batch.is_caught_up:
                    continue
                update = self._update(batch, is_loading=is_loading)
                yield update
                is_loading = is_loading and not update.replaces_all
                self._files += update.replaces_all
                self._content.deliver()

    def _recognize(self, batch: LineBatch) -> None:
        """Raise `Unavailable` if the first lines are not of the kind of this source, or the file is a text.

        A stream may begin with a line of text, and so may what is appended to an empty file: that line is rejected.
        """
        lines = [line.text for line in batch.lines if line.text and line.text.strip()]
        if lines and not self._is_recognized:
            if batch.size and not self._files:
                require_json(self._content.kind, lines)
            require_kind(self._content.kind, lines)
            self._is_recognized = True

    def _read(self, batch: LineBatch) -> list[Rejected]:
        """Read the lines of a batch, unless they were read before, and return the rejected ones."""
        if batch.offset == self._offset and not batch.is_end:
            return []
        self._offset = batch.offset
        return [one.as_record() for one in self._content.read(batch) if isinstance(one, RejectedLine)]

    def _update(self, batch: LineBatch, *, is_loading: bool) -> Update:
        content, changes = self._content, self._content.changes()
        self._is_blank = self._is_blank and not (changes.books or changes.removed or changes.is_publication)
        # A file that is rewritten in place may not be whole yet, nor one whose lines wait, and a stream never is.
        is_waiting = bool(content.pending or content.pending_invalid or not batch.is_finished)
        is_whole_file = not (self._is_blank or is_waiting or batch.is_rewritten or self._lines.is_stream)
        is_unfinished = content.reads_on and not batch.is_finished
        update = evolve(
            changes,
            is_complete=changes.is_complete or is_whole_file or None,
            invalid=[
                *changes.invalid,
                *([Unnamed.UNFINISHED] if is_unfinished else []),
                *(content.pending_invalid if batch.is_end else ()),
            ],
            resolved=[*changes.resolved, *([] if is_unfinished else [Unnamed.UNFINISHED])],
            has_more=self._lines.is_stream and not batch.is_end,
            problem=batch.problem,
            unknown=content.problem or (self._uncommitted() if batch.is_end else None),
        )
        # The content of a replaced file stays live until the content of the new file is known.
        if not is_loading or (self._files and content.problem is not None and not changes.is_publication):
            return update
        if is_unfinished and batch.unfinished is not None:
            LOG.info("%s: line %d waits for its newline", self.name, batch.unfinished.number)
        if content.pending:
            LOG.info("%s: %d %ss wait for a %s", self.name, content.pending, content.pending_record, content.commit)
        reason = "it was replaced or truncated" if self._files else None
        return evolve(update, replaces_all=True, is_blank=self._is_blank, reload_reason=reason)

    def _uncommitted(self) -> str | None:
        """Return how many records are not visible at the end of a stream; None if all are."""
        count, record, commit = self._content.pending, self._content.pending_record, self._content.commit
        return f"ended while {count} {record}{'' if count == 1 else 's'} waited for a {commit}" if count else None
