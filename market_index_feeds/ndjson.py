"""Order books as lines of JSON, each in the shape that the order-book endpoint answers: a file, or a stream.

A later line replaces an earlier one of the same pair. A line that holds no order book is skipped, counted and logged
with its number and the reason. Blank lines, CRLF and a byte-order mark at the start are fine.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from io import FileIO
from itertools import takewhile
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

from attrs import frozen

from market_index import LiveIndex, MarketIndex, MarketIndexError, OrderBook, Pair, wire
from market_index_feeds.feed import LOG, Feed, FeedError, Progress
from market_index_feeds.opened import shown_name

MAX_LINE_LENGTH: Final = 16 * 1024 * 1024
"""The most bytes of a line, its newline aside; a longer one is refused, and never held in memory whole."""

POLL_SECONDS: Final = 0.1
"""How often a followed file is looked at."""

TROUBLE_SECONDS: Final = 1.0
"""How long to wait after a file could not be read."""

UNREST_SECONDS: Final = 1.0
"""How long a file that is rewritten in place is waited for before it is read as it is."""

STREAM_PAUSE_SECONDS: Final = 0.25
STREAM_WAIT_SECONDS: Final = 10.0
"""A stream counts as loaded at its end or its first pause, but after so long at the latest."""

_STANDARD_INPUT: Final = 0
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
        line = self.unfinished
        self._unfinished.clear()
        self._too_long = False
        self.number += 1
        if self.number == 1 and line is not None:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        return self.number, line


@frozen
class RefusedLine:
    """A line that holds no order book: its number, and why."""

    number: int
    reason: str
    line: bytes | None

    @property
    def pair(self) -> Pair | None:
        """The pair that the line names all the same, as far as that can be read."""
        return None if self.line is None else wire.pair_named_in(self.line)


@frozen
class Batch:
    """What could be read of a stream without waiting, and how many bytes of it are read by now."""

    books: list[OrderBook]
    refused: list[RefusedLine]
    offset: int


def _read_line(number: int, line: bytes | None) -> OrderBook | RefusedLine | None:
    """Return what a line holds: an order book, or why it holds none, or None where it is blank."""
    if line is None:
        return RefusedLine(number, f"it is longer than {MAX_LINE_LENGTH} bytes", None)
    if not line.strip():
        return None
    try:
        return wire.order_book_from_json(line)
    except MarketIndexError as error:
        return RefusedLine(number, str(error), line)


class _NdjsonFeed(Feed):
    """What a file and a stream have in common: a line becomes a book, or is refused and told of."""

    def _held(self, lines: Iterator[tuple[int, bytes | None]]) -> Iterator[OrderBook | RefusedLine]:
        """Yield what the lines hold, counted, and logged where it is refused."""
        for number, line in lines:
            held = _read_line(number, line)
            if isinstance(held, RefusedLine):
                self._refuse(held)
            elif held is not None:
                self.books += 1
            if held is not None:
                yield held

    def _refuse(self, line: RefusedLine) -> None:
        self.refused += 1
        LOG.warning("%s line %d refused: %s", self.source, line.number, line.reason)


class NdjsonFile(_NdjsonFeed):
    """A file, followed: appended lines go live, and so does the whole of a file that takes its place.

    The pairs that a new file no longer names are dropped, but not one that a refused line names, or may name: a bad
    line never costs a good book. A file that vanishes, holds nothing or cannot be read leaves the last good index up.

    Lines are to be appended, or the file replaced in one step (written beside it, then renamed over it). One that is
    rewritten in place is noticed too, and read anew once it is at rest; what is half written for long is half read.
    """

    def __init__(self, source: str, path: Path) -> None:
        super().__init__(source)
        self._path = path
        self._file: _ReadFile | None = None
        # The pairs that good lines of the file name; those that are up since before and that no line has named yet;
        # and those that refused lines name, with None where one may name any.
        self._named: set[Pair] = set()
        self._earlier: set[Pair] = set()
        self._doubted: set[Pair | None] = set()
        self._unrest: tuple[float, object] | None = None

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()

    def _load(self, live: LiveIndex, progress: Progress | None) -> None:
        try:
            self._read_anew(live, progress)
        except OSError as error:
            raise FeedError(f"{self.source} cannot be read: {error.strerror}") from None

    def _follow(self, live: LiveIndex) -> None:
        pause = POLL_SECONDS
        while not self._closing.wait(pause) and self._file is not None:
            pause = POLL_SECONDS
            try:
                self._look(self._file, live)
            except FileNotFoundError:
                self._tell(f"is not there; its {self._pairs} pairs stay as they were")
            except OSError as error:
                self._tell(f"cannot be read ({error.strerror}); its {self._pairs} pairs stay as they were")
                pause = TROUBLE_SECONDS

    def _look(self, file: _ReadFile, live: LiveIndex) -> None:
        """Look at the file once, and read what has changed."""
        whole = file.is_as_read(self._closing)
        if whole:
            # Of a file that was renamed away, too: its last lines may not have been read yet.
            self._read_on(file, live)
        found = self._path.stat()
        if not file.is_at(found) or (not whole and self._is_at_rest(found)):
            self._read_anew(live, None)
        if self._pairs and not self._named and not self._doubted:
            self._tell(f"holds no order book; its {self._pairs} pairs stay until it does")
        else:
            self._tell(None)

    def _read_on(self, file: _ReadFile, live: LiveIndex) -> None:
        """Read what was appended."""
        before = file.offset
        try:
            for chunk in file.chunks(self._closing):
                books: list[OrderBook] = []
                for held in self._held(file.lines.feed(chunk)):
                    if isinstance(held, OrderBook):
                        books.append(held)
                    else:
                        self._doubted.add(held.pair)
                live.publish(*books)
                self._named.update(book.pair for book in books)
                self._earlier -= self._named
        except BaseException:
            # On a defect the rest of the chunk would be lost: let the file be read anew.
            file.rewritten = True
            raise
        dropped = self._forget(file, live, ()) if file.offset > before else 0
        if dropped:
            LOG.info("%s: %d pairs dropped that it no longer names", self.source, dropped)

    def _read_anew(self, live: LiveIndex, progress: Progress | None) -> None:
        """Read the whole file, and publish it in one swap."""
        file = _ReadFile(FileIO(self._path))
        try:
            books, doubted = self._read_whole(file, progress)
        except BaseException:
            file.close()
            raise
        if self._closing.is_set():
            file.close()
            return
        before, self._file = self._file, file
        self._earlier = (self._earlier | self._named) - books.keys()
        self._named = set(books)
        self._doubted = doubted
        dropped = self._forget(file, live, books.values())
        if before is not None:
            before.close()
            if books or doubted:
                LOG.info("%s was read anew: it names %d pairs, %d were dropped", self.source, len(books), dropped)
        if self._earlier and doubted:
            kept = "%s: %d pairs stay, because a line that was refused names them, or may"
            LOG.warning(kept, self.source, len(self._earlier))

    def _read_whole(self, file: _ReadFile, progress: Progress | None) -> tuple[dict[Pair, OrderBook], set[Pair | None]]:
        """Return the books of the file, and the pairs that its refused lines name, or None for any."""
        books: dict[Pair, OrderBook] = {}
        doubted: set[Pair | None] = set()
        size = file.size
        for chunk in file.chunks(self._closing):
            for held in self._held(file.lines.feed(chunk)):
                if isinstance(held, OrderBook):
                    books[held.pair] = held
                else:
                    doubted.add(held.pair)
            if progress is not None:
                progress(file.offset, max(size, file.offset))
        if file.lines.unfinished != b"":
            LOG.info("%s line %d waits for its newline", self.source, file.lines.number + 1)
        return books, doubted

    def _forget(self, file: _ReadFile, live: LiveIndex, books: Iterable[OrderBook]) -> int:
        """Publish the books, and retract in the same swap what the file no longer names; return how many that are."""
        gone: set[Pair] = set()
        if self._earlier:
            doubted = set(self._doubted)
            unfinished = file.lines.unfinished
            if unfinished != b"":
                doubted.add(wire.pair_named_in(unfinished) if unfinished else None)
            if None not in doubted and (self._named or doubted):
                gone = self._earlier - doubted
        self._earlier -= gone
        if books or gone:
            live.update(books, gone)
        return len(gone)

    def _is_at_rest(self, found: os.stat_result) -> bool:
        """Whether a file that was rewritten is still the same at a second look, or was waited for long enough."""
        now, state = monotonic(), _state(found)
        since, before = self._unrest or (now, None)
        at_rest = state == before or now - since >= UNREST_SECONDS
        self._unrest = None if at_rest else (since, state)
        return at_rest

    @property
    def _pairs(self) -> int:
        return len(self._named) + len(self._earlier)


def _state(found: os.stat_result) -> tuple[int, int, int]:
    """Return what changes whenever a file is written."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


class _ReadFile:
    """An open file as far as it was read, and whether what was read of it stands there still."""

    def __init__(self, file: FileIO) -> None:
        self.lines = Lines()
        self.offset = 0
        self._file = file
        found = os.fstat(file.fileno())
        self._identity = (found.st_dev, found.st_ino)
        self._state = _state(found)
        self._head = b""
        self._tail = b""
        self._digest = blake2b()
        # Whether it was written to since the digest was compared, whether that showed it to be rewritten, and from
        # when on it may be compared again.
        self._written_to = False
        self.rewritten = False
        self._compare_from = 0.0

    @property
    def size(self) -> int:
        """How many bytes it had when it was last looked at."""
        return self._state[0]

    def close(self) -> None:
        self._file.close()

    def is_at(self, found: os.stat_result) -> bool:
        """Whether what was found at a path is this file."""
        return (found.st_dev, found.st_ino) == self._identity

    def chunks(self, closing: Event) -> Iterator[bytes]:
        """Yield what there is to read, up to the end of the file."""
        while not closing.is_set() and (chunk := self._file.read(_CHUNK)):
            self.offset += len(chunk)
            self._head += chunk[: _KNOWN - len(self._head)]
            self._tail = (self._tail + chunk)[-_KNOWN:]
            self._digest.update(chunk)
            yield chunk
        self._note()

    def is_as_read(self, closing: Event) -> bool:
        """Whether all that was read stands there still.

        Start and end of it are compared whenever the file was written to, and the whole of it as often as that takes
        no more than a twentieth of the time: an append goes live at once, and a change further up is noticed a little
        later.
        """
        self._note()
        if self._written_to and not self.rewritten:
            self.rewritten = (
                self.size < self.offset
                or self._read_at(0, len(self._head)) != self._head
                or self._read_at(self.offset - len(self._tail), len(self._tail)) != self._tail
                or (monotonic() >= self._compare_from and not self._is_same_throughout(closing))
            )
            self._file.seek(self.offset)
        return not self.rewritten

    def _note(self) -> None:
        state = _state(os.fstat(self._file.fileno()))
        self._written_to = self._written_to or state != self._state
        self._state = state

    def _is_same_throughout(self, closing: Event) -> bool:
        begun = monotonic()
        digest = blake2b()
        # Cut short it comes out as not the same; but then nothing is read or published any more.
        for position in takewhile(lambda _: not closing.is_set(), range(0, self.offset, _CHUNK)):
            digest.update(self._read_at(position, min(_CHUNK, self.offset - position)))
        self._written_to = False
        self._compare_from = monotonic() + 19 * (monotonic() - begun)
        return digest.digest() == self._digest.digest()

    def _read_at(self, position: int, length: int) -> bytes:
        self._file.seek(position)
        return self._file.read(length) or b""


class NdjsonStream(_NdjsonFeed):
    """Standard input or a pipe: lines go live as they come, until it ends. A last line without newline is refused.

    A file can be read as a stream too: once, to its end. `size` is how many bytes it has then, else 0.
    """

    followed_by_many = False

    def __init__(self, source: str, stream: int | str) -> None:
        """`stream` is an open descriptor, or the path of what is opened, and waited for, by the thread that reads."""
        super().__init__(source)
        self.is_whole = False
        self.size = 0
        self._stream = stream
        self._stirred = Event()
        self._ended = Event()

    def start(self, live: LiveIndex, progress: Progress | None = None) -> None:
        """Start reading; return at the stream's end, or at its first pause, or after `STREAM_WAIT_SECONDS`."""
        super().start(live, progress)
        deadline = monotonic() + STREAM_WAIT_SECONDS
        stirred = True
        while stirred and not self._ended.is_set() and monotonic() < deadline:
            self._stirred.clear()
            stirred = self._stirred.wait(STREAM_PAUSE_SECONDS)
            if progress is not None:
                progress(0, 0)

    def read(self, progress: Progress | None = None) -> MarketIndex:
        """Return what the stream holds from here to its end."""
        self._begin()
        live = LiveIndex()
        try:
            for batch in self.batches():
                live.publish(*batch.books)
                if progress is not None:
                    progress(0, 0)
        except OSError as error:
            raise FeedError(f"{self.source} cannot be read: {error.strerror}") from None
        return live.current

    @property
    def age(self) -> float:
        """Seconds since the stream ended; 0 while it is open, since nothing was missed then."""
        return super().age if self._ended.is_set() else 0.0

    def close(self) -> None:
        """Stop publishing. A read that waits for the stream is left to the end of the process."""
        self._closing.set()

    def _load(self, live: LiveIndex, progress: Progress | None) -> None:
        """Nothing can be read of a stream without waiting for it."""

    def _follow(self, live: LiveIndex) -> None:
        try:
            for batch in self.batches():
                live.publish(*batch.books)
                self._tell(None)
                self._stirred.set()
        except OSError as error:
            LOG.error("%s cannot be read on: %s", self.source, error.strerror)
        else:
            self.is_whole = True
        LOG.info("%s ended: %d order books read, %d lines refused", self.source, self.books, self.refused)
        self._ended.set()
        self._stirred.set()

    def batches(self) -> Iterator[Batch]:
        """Yield what there is to read, as much at a time as is there without waiting, until the stream ends.

        Raises `OSError` when it cannot be read.
        """
        if isinstance(self._stream, int):
            yield from self._batches(self._stream)
        else:
            with FileIO(self._stream) as stream:
                yield from self._batches(stream.fileno())

    def _batches(self, descriptor: int) -> Iterator[Batch]:
        lines, offset = Lines(), 0
        found = os.fstat(descriptor)
        self.size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        while chunk := _read_waiting(descriptor):
            batch = Batch([], [], offset := offset + len(chunk))
            for held in self._held(lines.feed(chunk)):
                if isinstance(held, OrderBook):
                    batch.books.append(held)
                else:
                    batch.refused.append(held)
            if self._closing.is_set():
                return
            yield batch
        if lines.unfinished is None or lines.unfinished.strip():
            last = RefusedLine(lines.number + 1, "it was not finished by a newline", lines.unfinished)
            self._refuse(last)
            yield Batch([], [last], offset)


def _read_waiting(descriptor: int) -> bytes:
    """Return what there is to read, waited for even where whoever shares the stream has set it not to block."""
    while True:
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            select.select([descriptor], [], [])


def open_ndjson(source: str) -> NdjsonFile | NdjsonStream:
    """Open a file or a pipe by its path, or standard input by `-`.

    Raises `FeedError` when there is nothing to be read there.
    """
    stream = open_stream(source)
    if source == "-" or not Path(source).is_file():
        return stream
    return NdjsonFile(stream.source, Path(source))


def open_stream(source: str) -> NdjsonStream:
    """Open a file or a pipe by its path, or standard input by `-`, to be read once, to its end.

    Raises `FeedError` when there is nothing to be read there.
    """
    if source == "-":
        try:
            # Of a stream that is closed, or open for writing alone, not even nothing can be read.
            os.read(_STANDARD_INPUT, 0)
        except OSError as error:
            raise FeedError(f"standard input cannot be opened: {error.strerror}") from None
        return NdjsonStream("standard input", _STANDARD_INPUT)
    name = shown_name(source)
    try:
        mode = Path(source).stat().st_mode
    except (OSError, ValueError) as error:
        raise FeedError(f"{name} cannot be opened: {getattr(error, 'strerror', error)}") from None
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISREG(mode)):
        raise FeedError(f"{name} cannot be opened: it is not a file")
    return NdjsonStream(name, source)
