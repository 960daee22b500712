"""Lines that contain order books, and a stream of them that is read once: what `market-index publish` reads."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from threading import Event

from attrs import frozen

from market_index import MarketIndexError, OrderBook, Pair, wire
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.line_source import MAX_LINE_BYTES, Line, LineBatch, LineStream, open_stream
from market_index_feeds.medium import Names, Rejected
from market_index_feeds.rejections import RejectionLog


@frozen
class RejectedLine:
    """A line that contains no order book: its number, why, and the pair that it names, None where it may name any."""

    number: int
    reason: str
    pair: Pair | None

    def as_record(self) -> Rejected:
        """Return it as the follower takes it."""
        return Rejected(f"line {self.number}", self.reason, Names.ANY if self.pair is None else self.pair)


@frozen
class BookBatch:
    """The order books and rejected lines that could be read at once; `offset` is the number of bytes read so far.

    It contains neither if all lines were blank.
    """

    books: list[OrderBook]
    rejected: list[RejectedLine]
    offset: int


class BookStream:
    """Order books that are read once, to the end, as they come.

    `source` is the name it was opened by. `size` is the number of bytes of a file, else 0. `books` counts the order
    books read so far, `rejected` the lines without one, of which the first in each minute are logged.
    """

    def __init__(self, lines: LineStream) -> None:
        self.source: str = lines.name
        self.books: int = 0
        self.rejected: int = 0
        self._lines = lines

    @property
    def size(self) -> int:
        """The number of bytes of a file, once it is read; else 0."""
        return self._lines.size

    def batches(self) -> Generator[BookBatch, None, None]:
        """Yield what there is to read, as much at a time as is there without waiting. Raises `FeedError`."""
        try:
            rejections, offset = RejectionLog(self.source, "lines"), 0
            with closing(rejections), closing(self._lines.batches(Event())) as batches:
                for batch in batches:
                    read = read_books(batch)
                    self.books += len(read.books)
                    self.rejected += len(read.rejected)
                    for line in read.rejected:
                        rejections.add(f"line {line.number}", line.reason)
                    if read.rejected or read.offset != offset:
                        offset = read.offset
                        yield read
        except OSError as error:
            raise FeedError(f"{self.source} cannot be read: {reason_of(error)}") from None


def open_book_stream(source: str) -> BookStream:
    """Open a file or a pipe of order books by its path, or standard input by `-`, to be read once, to its end.

    Raises `FeedError` when there is nothing to be read there.
    """
    return BookStream(open_stream(source))


def read_books(batch: LineBatch) -> BookBatch:
    """Return what the lines of a batch contain. Blank lines contain nothing; a last line needs its newline."""
    read = BookBatch([], [], batch.offset)
    for line in batch.lines:
        held = _read(line)
        if isinstance(held, OrderBook):
            read.books.append(held)
        elif held is not None:
            read.rejected.append(held)
    last = batch.unfinished
    if batch.is_end and last is not None and (last.text is None or last.text.strip()):
        read.rejected.append(RejectedLine(last.number, "it was not finished by a newline", pair_named_in(last)))
    return read


def pair_named_in(line: Line) -> Pair | None:
    """Return the pair that a line names, although it may contain no valid book; None where it may name any."""
    return None if line.text is None else wire.pair_named_in(line.text)


def _read(line: Line) -> OrderBook | RejectedLine | None:
    if line.text is None:
        return RejectedLine(line.number, f"it is longer than {MAX_LINE_BYTES} bytes", None)
    if not line.text.strip():
        return None
    try:
        return wire.order_book_from_json(line.text)
    except MarketIndexError as error:
        return RejectedLine(line.number, str(error), pair_named_in(line))
