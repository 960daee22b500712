"""A stream of order books that is read once: what `market-index publish` reads."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from threading import Event

from attrs import frozen

from market_index import Freshness, OrderBook, Pair
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.line_source import LineStream, open_stream
from market_index_feeds.medium import Names
from market_index_feeds.ndjson.book_lines import RejectedLine, contents_of
from market_index_feeds.ndjson.commits import Changes, Commits
from market_index_feeds.rejections import RejectionLog


@frozen
class BookBatch:
    """Order books that became visible at once, and rejected lines; `offset` is the number of bytes read so far.

    `commit` is the freshness of the commit line that ends the batch, None if none does. A batch may contain nothing.
    """

    books: list[OrderBook]
    """At most one per pair."""

    rejected: list[RejectedLine]
    offset: int
    commit: Freshness | None = None


class BookStream:
    """Order books that are read once, to the end, as they come.

    Once there was a commit line, later books wait for the next one. `source` is the name it was opened by. `size` is
    the number of bytes of a file, else 0. `books` counts the order books in the batches so far, `rejected` the rejected
    lines, of which the first in each minute are logged.
    """

    def __init__(self, lines: LineStream) -> None:
        self.source: str = lines.name
        self.books: int = 0
        self.rejected: int = 0
        self._lines = lines
        self._commits = Commits()
        self._unresolved: set[Pair | Names] = set()

    @property
    def size(self) -> int:
        """The number of bytes of a file, once it is read; else 0."""
        return self._lines.size

    @property
    def uncommitted(self) -> int:
        """The number of order books that wait for a commit line."""
        return self._commits.pending.books_read

    @property
    def is_current(self) -> bool:
        """Whether no rejected line before the end of the last batch may have contained a newer book of a pair."""
        return self._unresolved <= {Names.NONE}

    def batches(self) -> Generator[BookBatch, None, None]:
        """Yield what there is to read, as much at a time as is there without waiting. Raises `FeedError`.

        Each commit line ends a batch, which contains all books since the last one that were not in a batch before.
        """
        commits, offset = self._commits, 0
        try:
            rejections = RejectionLog(self.source, "lines")
            with closing(rejections), closing(self._lines.batches(Event())) as batches:
                for batch in batches:
                    rejected: list[RejectedLine] = []
                    for content in contents_of(batch):
                        commits.add(content)
                        if isinstance(content, RejectedLine):
                            rejections.add(f"line {content.number}", content.reason)
                            rejected.append(content)
                        elif isinstance(content, Freshness):
                            yield self._visible(rejected, batch.offset)
                            rejected = []
                    if rejected or batch.offset != offset:
                        offset = batch.offset
                        yield self._visible(rejected, offset)
        except OSError as error:
            raise FeedError(f"{self.source} cannot be read: {reason_of(error)}") from None

    def _visible(self, rejected: list[RejectedLine], offset: int) -> BookBatch:
        """Return what became visible since the last batch."""
        visible, self._commits.visible = self._commits.visible, Changes()
        self._unresolved = self._unresolved.difference(visible.books) | visible.rejected
        self.books += visible.books_read
        self.rejected += len(rejected)
        return BookBatch(list(visible.books.values()), rejected, offset, visible.freshness)


def open_book_stream(source: str) -> BookStream:
    """Open a file or a pipe of order books by its path, or standard input by `-`, to be read once, to its end.

    Raises `FeedError` when there is nothing to be read there.
    """
    return BookStream(open_stream(source))
