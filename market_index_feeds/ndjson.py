"""Order books as lines of JSON, each in the shape that the order-book endpoint answers: a file, or a stream.

A later line replaces an earlier one of the same pair. A line that holds no order book is skipped, counted and logged
with its number and the reason. Blank lines, CRLF and a byte-order mark at the start are fine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

from attrs import define, field, frozen

from market_index import LiveIndex, MarketIndexError, OrderBook, Pair, wire
from market_index_feeds.feed import LOG, Feed, FeedError, Progress

MAX_LINE_LENGTH: Final = 16 * 1024 * 1024
"""The most bytes of a line, its newline aside; a longer one is refused, and never held in memory whole."""

POLL_SECONDS: Final = 0.1
"""How often a followed file is looked at."""

STREAM_PAUSE_SECONDS: Final = 0.25
STREAM_WAIT_SECONDS: Final = 10.0
"""A stream counts as loaded at its end or its first pause, but after so long at the latest."""

_CHUNK: Final = 256 * 1024
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_KNOWN: Final = 4096
"""How many bytes at the start of a file, and before its read end, tell that it was appended to and not rewritten."""


class Lines:
    """Cuts chunks of bytes into numbered lines, with no more than one line of the legal length in memory."""

    def __init__(self) -> None:
        self.number = 0
        self._unfinished = bytearray()
        self._too_long = False

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Yield the lines that end within the chunk, without their newline; None stands for one too long."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._finished()
        self._add(rest)

    @property
    def unfinished(self) -> bytes | None:
        """The line that has no newline yet, empty where there is none, or None where it is too long already."""
        return None if self._too_long else bytes(self._unfinished)

    def _add(self, piece: bytes) -> None:
        if len(self._unfinished) + len(piece) > MAX_LINE_LENGTH:
            self._too_long = True
        if self._too_long:
            self._unfinished.clear()
        else:
            self._unfinished += piece

    def _finished(self) -> tuple[int, bytes | None]:
        line = None if self._too_long else bytes(self._unfinished)
        self._unfinished.clear()
        self._too_long = False
        self.number += 1
        if self.number == 1 and line is not None:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        return self.number, line


@frozen
class _Refused:
    """A line that holds no order book: why, and the pair that it names as far as that can be read."""

    reason: str
    pair: Pair | None


def _read_line(line: bytes | None) -> OrderBook | _Refused | None:
    """Return what a line holds: an order book, or why it holds none, or None where it is blank."""
    if line is None:
        return _Refused(f"it is longer than {MAX_LINE_LENGTH} bytes", None)
    if not line.strip():
        return None
    try:
        return wire.order_book_from_json(line)
    except MarketIndexError as error:
        return _Refused(str(error), wire.pair_named_in(line))


class _NdjsonFeed(Feed):
    """What a file and a stream have in common: a line becomes a book, or is refused and told of."""

    def _books(self, lines: Iterator[tuple[int, bytes | None]]) -> Iterator[OrderBook | _Refused]:
        """Yield what the lines hold, counted, and logged where it is refused."""
        for number, line in lines:
            held = _read_line(line)
            if isinstance(held, _Refused):
                self.refused += 1
                LOG.warning("%s line %d refused: %s", self.source, number, held.reason)
            elif held is not None:
                self.books += 1
            if held is not None:
                yield held


class NdjsonFile(_NdjsonFeed):
    """A file, followed: appended lines go live, and so does the whole of a file that takes its place.

    The pairs that a new file no longer names are dropped. One that a refused line names, or may name, is kept: a bad
    line never costs a good book. A file that vanishes, is empty or cannot be read leaves the last good index up.

    Lines are to be appended, or the file replaced in one step (written beside it, then renamed over it). One that is
    rewritten in place is read anew too, as soon as it was seen at rest; what is half written then is half read.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = Path(path)
        self._read: _ReadFile | None = None
        self._named: set[Pair] = set()
        self._seen: object = None
        self._trouble: str | None = None

    def close(self) -> None:
        """Stop following, and close the file."""
        super().close()
        if self._read is not None:
            self._read.file.close()

    def _load(self, live: LiveIndex, progress: Progress | None) -> None:
        try:
            self._read_anew(live, progress)
        except OSError as error:
            raise FeedError(f"{self.source} cannot be read: {error.strerror}") from None

    def _follow(self, live: LiveIndex) -> None:
        while not self._closing.wait(POLL_SECONDS):
            try:
                self._look(live)
            except OSError as error:
                self._tell(f"cannot be read ({error.strerror}); its {len(self._named)} pairs stay as they were")

    def _look(self, live: LiveIndex) -> None:
        """Look at the file once, and read what has changed."""
        found = self._path.stat()
        read = self._read
        if read is not None and read.goes_on(found):
            if found.st_size > read.offset:
                for chunk in read.chunks():
                    books = [held for held in self._books(read.lines.feed(chunk)) if isinstance(held, OrderBook)]
                    live.publish(*books)
                    self._named.update(book.pair for book in books)
            self._tell(None)
            return
        # Another file, or this one rewritten: read it once it has been at rest between two looks.
        seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if seen != self._seen:
            self._seen = seen
        elif not found.st_size:
            self._tell(f"is empty; its {len(self._named)} pairs stay as they were")
        else:
            self._read_anew(live, None)
            self._tell(None)

    def _read_anew(self, live: LiveIndex, progress: Progress | None) -> None:
        """Read the whole file, and publish it in one swap."""
        read = _ReadFile(FileIO(self._path))
        books: dict[Pair, OrderBook] = {}
        unsure: set[Pair | None] = set()
        try:
            size = os.fstat(read.file.fileno()).st_size
            for chunk in read.chunks():
                for held in self._books(read.lines.feed(chunk)):
                    if isinstance(held, OrderBook):
                        books[held.pair] = held
                    else:
                        unsure.add(held.pair)
                if progress is not None:
                    progress(read.offset, max(size, read.offset))
        except BaseException:
            read.file.close()
            raise
        if read.lines.unfinished != b"":
            LOG.info("%s line %d waits for its newline", self.source, read.lines.number + 1)
            unsure.add(wire.pair_named_in(read.lines.unfinished or b""))
        gone = self._named - books.keys()
        kept = gone if None in unsure else gone & unsure
        gone = gone - kept
        live.update(books.values(), gone)
        if self._read is not None:
            self._read.file.close()
            LOG.info(
                "%s was read anew: %d pairs, %d dropped, %d kept that lines which were refused name or may name",
                *(self.source, len(books), len(gone), len(kept)),
            )
        self._read = read
        self._named = set(books) | kept

    def _tell(self, trouble: str | None) -> None:
        """Log what is wrong with the file once, and once that it is over."""
        if trouble != self._trouble:
            if trouble is None:
                LOG.info("%s is followed again", self.source)
            else:
                LOG.warning("%s %s", self.source, trouble)
            self._trouble = trouble


@define
class _ReadFile:
    """An open file as far as it was read."""

    file: FileIO
    lines: Lines = field(factory=Lines)
    offset: int = 0
    _modified: int = 0
    _head: bytes = b""
    _tail: bytes = b""

    def chunks(self) -> Iterator[bytes]:
        """Yield what there is to read, up to the end of the file."""
        while chunk := self.file.read(_CHUNK):
            self.offset += len(chunk)
            self._head += chunk[: _KNOWN - len(self._head)]
            self._tail = (self._tail + chunk)[-_KNOWN:]
            yield chunk
        self._modified = os.fstat(self.file.fileno()).st_mtime_ns

    def goes_on(self, found: os.stat_result) -> bool:
        """Whether what was found at the path is this file still, with what was read of it unchanged."""
        own = os.fstat(self.file.fileno())
        if (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino) or found.st_size < self.offset:
            return False
        if found.st_size == self.offset:
            return found.st_mtime_ns == self._modified
        self.file.seek(0)
        head = self.file.read(len(self._head))
        self.file.seek(self.offset - len(self._tail))
        return head == self._head and self.file.read(len(self._tail)) == self._tail


class NdjsonStream(_NdjsonFeed):
    """Standard input or a pipe: lines go live as they come, until it ends. A last line without newline is refused."""

    def __init__(self, source: str, descriptor: int) -> None:
        super().__init__(source)
        self._descriptor = descriptor
        self._stirred = Event()
        self._ended = Event()

    def start(self, live: LiveIndex, progress: Progress | None = None) -> None:
        """Start reading; return at the stream's end, or at its first pause, or after `STREAM_WAIT_SECONDS`."""
        super().start(live, progress)
        deadline = monotonic() + STREAM_WAIT_SECONDS
        while not self._ended.is_set() and monotonic() < deadline:
            self._stirred.clear()
            if not self._stirred.wait(STREAM_PAUSE_SECONDS):
                break

    def close(self) -> None:
        """Stop publishing. A read that waits for the stream is left to the end of the process."""
        self._closing.set()

    def _load(self, live: LiveIndex, progress: Progress | None) -> None:
        """Nothing can be read of a stream without waiting for it."""

    def _follow(self, live: LiveIndex) -> None:
        lines = Lines()
        while chunk := self._next_chunk():
            books = [held for held in self._books(lines.feed(chunk)) if isinstance(held, OrderBook)]
            if self._closing.is_set():
                return
            live.publish(*books)
            self._stirred.set()
        if lines.unfinished != b"":
            self.refused += 1
            LOG.warning("%s line %d refused: it was not finished by a newline", self.source, lines.number + 1)
        LOG.info("%s ended: %d order books read, %d lines refused", self.source, self.books, self.refused)
        self._ended.set()
        self._stirred.set()

    def _next_chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, _CHUNK)
        except OSError as error:
            LOG.error("%s cannot be read on: %s", self.source, error.strerror)  # the reason says it all
            return b""


def open_ndjson(source: str) -> Feed:
    """Open a file or a pipe by its path, or standard input by `-`.

    Raises `FeedError` when there is nothing to be read there.
    """
    if source == "-":
        return NdjsonStream("standard input", 0)
    try:
        descriptor = os.open(source, os.O_RDONLY)
    except (OSError, ValueError) as error:
        raise FeedError(f"{source} cannot be opened: {getattr(error, 'strerror', error)}") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return NdjsonStream(source, descriptor)
    os.close(descriptor)
    if not stat.S_ISREG(mode):
        raise FeedError(f"{source} cannot be opened: it is not a file")
    return NdjsonFile(source)
