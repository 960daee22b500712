"""Order books that are read once, in batches: the input of `market-index publish`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from threading import Event

from attrs import frozen

from market_index import Freshness, OrderBook, Pair
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.line_content import LineContent, RejectedLine
from market_index_feeds.line_source import LineStream
from market_index_feeds.medium import Names
from market_index_feeds.rejections import RejectionLog


@frozen
class BookBatch:
    """Order books that became visible together, and rejected lines. `offset` is the number of bytes read so far.

    `commit` is the freshness of the commit line or block that ends the batch; None if none does. A batch may be empty.
    """

    books: list[OrderBook]
    """At most one per pair."""

    rejected: list[RejectedLine]
    offset: int
    commit: Freshness | None = None

    removed: tuple[Pair, ...] = ()
    """Pairs that are no longer tracked."""


class BookStream:
    """A file or stream of order books that is read once, to its end.

    After the first commit line, later books wait for the next one. `source` is the name that the stream was opened by,
    without credentials. `books` counts the order books in the batches so far, `rejected` the rejected lines. The first
    rejected lines of each minute are logged.
    """

    def __init__(self, lines: LineStream, content: LineContent) -> None:
        self.source: str = lines.name
        self.books: int = 0
        self.rejected: int = 0
        self._lines = lines
        self._content = content
        self._unresolved: set[Pair | Names] = set()

    @property
    def size(self) -> int:
        """The number of bytes of a file, known once reading starts; otherwise 0."""
        return self._lines.size

    @property
    def uncommitted(self) -> int:
        """The number of order books that wait for a commit line, or of events that wait for a block."""
        return self._content.pending

    @property
    def problem(self) -> str | None:
        """Why the current books are not known from the lines read so far; None if they are."""
        return self._content.problem

    @property
    def knows_all_pairs(self) -> bool:
        """Whether a commit names all pairs, even if lines were rejected; true for a stream of orders."""
        return self._content.knows_all_pairs

    @property
    def pending_record(self) -> str:
        """The noun for a record that waits to be committed: order book, event."""
        return self._content.pending_record

    @property
    def commit(self) -> str:
        """The noun for a line that commits records: commit line, block."""
        return self._content.commit

    @property
    def is_current(self) -> bool:
        """Whether every book is the newest of its pair: no rejected line so far may have contained a newer one."""
        return self._unresolved <= {Names.NONE}

    def batches(self) -> Generator[BookBatch, None, None]:
        """Yield batches of what can be read without waiting, until the stream ends. Raises `FeedError`.

        Each commit line ends a batch, which contains the books that wait for it.
        """
        offset = 0
        try:
            rejections = RejectionLog(self.source, "lines")
            with closing(rejections), closing(self._lines.batches(Event())) as batches:
                for batch in batches:
                    rejected: list[RejectedLine] = []
                    for reported in self._content.read(batch):
                        if isinstance(reported, RejectedLine):
                            rejections.add(f"line {reported.number}", reported.reason)
                            rejected.append(reported)
                        else:
                            yield self._visible(rejected, batch.offset, rejections)
                            rejected = []
                    if rejected or batch.offset != offset:
                        offset = batch.offset
                        yield self._visible(rejected, offset, rejections)
        except OSError as error:
            raise FeedError(f"{self.source} cannot be read: {reason_of(error)}") from None

    def _visible(self, rejected: list[RejectedLine], offset: int, rejections: RejectionLog) -> BookBatch:
        """Return a batch of what became visible since the last one."""
        changes = self._content.changes()
        self._content.deliver()
        for record in changes.rejected:
            rejections.add(record.place, record.reason)
        pairs = {book.pair for book in changes.books}
        self._unresolved = self._unresolved.difference(pairs).union(changes.rejected_names)
        self.books += len(changes.books) if changes.books_read is None else changes.books_read
        self.rejected += len(rejected)
        return BookBatch(list(changes.books), rejected, offset, changes.freshness, tuple(changes.removed))
