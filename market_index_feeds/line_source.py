"""Reads lines from a file, which it follows, or from a stream.

Appends to the file are noticed, and so is another file that is renamed over it. A file that is rewritten in place is
noticed if it is shorter than the bytes read so far, or if the last bytes read have changed. Other bytes that are
overwritten in place are not noticed.
"""

from __future__ import annotations

import os
import select
import stat
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from io import FileIO
from pathlib import Path
from threading import Event
from time import monotonic
from typing import ClassVar, Final

from attrs import evolve, frozen

from market_index import wire
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.opened import shown_name
from market_index_feeds.regular_files import open_regular, open_without_waiting

MAX_LINE_BYTES: Final = wire.MAX_ORDER_BOOK_BYTES
"""The maximum length of a line, without its newline. A longer line is rejected, and never in memory as a whole."""

POLL_SECONDS: Final = 0.1
"""Interval between two checks of a followed file."""

STREAM_IDLE_SECONDS: Final = 0.25
"""How long a stream delivers nothing until it counts as idle. It is loaded when it is idle for the first time."""

STREAM_LOAD_SECONDS: Final = 10.0
"""How long a stream that is never idle is loaded at most."""

_STANDARD_INPUT: Final = 0
CHUNK_BYTES: Final = 256 * 1024
_TAIL_BYTES: Final = 256
"""How many of the last bytes read are compared with the file: if they differ, it was overwritten in place."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@frozen
class Line:
    """A line: its number, from 1, and its text without the newline; None if it exceeds `MAX_LINE_BYTES`."""

    number: int
    text: bytes | None


@frozen
class LineBatch:
    """The lines of one read. A batch without lines means that there is nothing new."""

    lines: list[Line]
    unfinished: Line | None
    """The last line, which has no newline yet and may be empty. None if there is more to read now."""

    offset: int
    """The number of bytes read so far."""

    size: int = 0
    """The number of bytes in total, as far as it is known."""

    is_start: bool = False
    """Whether the lines are the first ones of a file. The lines of the previous file are gone then."""

    is_rewritten: bool = False
    """Whether the file was rewritten in place, so that it may not be whole yet."""

    is_end: bool = False
    """Whether no more lines follow."""

    problem: str | None = None
    """Why there is no file at the path, although the open file is still read."""

    @property
    def is_caught_up(self) -> bool:
        """Whether there was nothing more to read at that time."""
        return self.unfinished is not None

    @property
    def is_finished(self) -> bool:
        """Whether it ends with a newline, or nothing that follows can end it."""
        return self.is_end or (self.unfinished is not None and self.unfinished.text == b"")


class LineCutter:
    """Splits chunks of bytes into numbered lines. It holds at most `MAX_LINE_BYTES` of an unfinished line.

    `offset` is the number of bytes of the lines that were yielded so far, with their newlines.
    """

    def __init__(self) -> None:
        self.offset: int = 0
        self._number = 0
        self._unfinished = bytearray()
        self._unfinished_bytes = 0
        self._is_too_long = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that end in the chunk."""
        first, *texts = chunk.split(b"\n")
        self._add(first)
        if not texts:
            return
        yield self._ended()
        rest = texts.pop()
        for text in texts:
            # Most lines, which begin and end in the chunk.
            if len(text) <= MAX_LINE_BYTES:
                self.offset += len(text) + 1
                self._number += 1
                yield Line(self._number, text)
            else:
                self._add(text)
                yield self._ended()
        self._add(rest)

    def _ended(self) -> Line:
        """Return the unfinished line, which has ended, and start the next one."""
        self.offset += self._unfinished_bytes + 1
        self._unfinished_bytes = 0
        line = self.unfinished
        self._number += 1
        self._unfinished.clear()
        self._is_too_long = False
        return line

    @property
    def unfinished(self) -> Line:
        """The line that has no newline yet."""
        if self._is_too_long:
            return Line(self._number + 1, None)
        text = bytes(self._unfinished)
        return Line(self._number + 1, text if self._number else text.removeprefix(_BYTE_ORDER_MARK))

    def _add(self, piece: bytes) -> None:
        self._unfinished_bytes += len(piece)
        if len(self._unfinished) + len(piece) > MAX_LINE_BYTES:
            self._is_too_long = True
        if self._is_too_long:
            self._unfinished.clear()
        else:
            self._unfinished += piece


class LineSource(ABC):
    """A source of lines. `name` is its name in messages."""

    is_stream: ClassVar[bool]
    """Whether the lines can be read only once, by one process, and end."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def batches(self, stop: Event) -> Generator[LineBatch, None, None]:
        """Yield batches until `stop` is set or the lines end. Raises `OSError`."""


class LineFile(LineSource):
    """A file of lines that is followed without end."""

    is_stream = False

    def __init__(self, name: str, path: Path, *, poll_seconds: float = POLL_SECONDS) -> None:
        super().__init__(name)
        self._path = path
        self._poll_seconds = poll_seconds
        # The device and inode of the last file that was rewritten in place.
        self._rewritten: tuple[int, int] | None = None

    def batches(self, stop: Event) -> Generator[LineBatch, None, None]:
        """Yield the content of the file, then what is appended; again from the start for each file that replaces it."""
        while not stop.is_set():
            with open_regular(self._path) as file:
                status = os.fstat(file.fileno())
                identity = status.st_dev, status.st_ino
                if (yield from self._batches(file, stop, is_rewritten=identity == self._rewritten)):
                    self._rewritten = identity

    def _batches(self, file: FileIO, stop: Event, *, is_rewritten: bool) -> Generator[LineBatch, None, bool]:
        """Yield the lines of one open file until another replaces it, or it is rewritten in place. Return which."""
        cutter, offset, is_start, problem, tail = LineCutter(), 0, True, None, b""
        while not stop.is_set():
            chunk = file.read(CHUNK_BYTES) or b""
            if not chunk and not is_start:
                if stop.wait(self._poll_seconds):
                    break
                is_replaced, problem = False, None
                try:
                    is_replaced = not self._is_at_path(file)
                except FileNotFoundError as error:
                    # It may still be appended to, by a program that has it open.
                    problem = reason_of(error)
                is_truncated = os.fstat(file.fileno()).st_size < offset
                # Read again after the check, to miss nothing that was appended before the file was replaced.
                chunk = file.read(CHUNK_BYTES) or b""
                if not chunk and (is_replaced or is_truncated):
                    return not is_replaced
            # Checked after the read: the chunk may belong to other content.
            if os.pread(file.fileno(), len(tail), offset - len(tail)) != tail:
                return True
            offset += len(chunk)
            tail = (tail + chunk)[-_TAIL_BYTES:]
            size = max(os.fstat(file.fileno()).st_size, offset)
            lines = list(cutter.feed(chunk))
            unfinished = cutter.unfinished if offset == size else None
            yield LineBatch(lines, unfinished, offset, size, is_start, is_rewritten, problem=problem)
            is_start = False
        return False

    def _is_at_path(self, file: FileIO) -> bool:
        return os.path.samestat(self._path.stat(), os.fstat(file.fileno()))


class LineStream(LineSource):
    """Standard input or a pipe, read to its end. A file can be read as a stream too.

    `size` is the number of bytes of a file, otherwise 0.
    """

    is_stream = True

    def __init__(
        self,
        name: str,
        stream: int | str,
        *,
        idle_seconds: float = STREAM_IDLE_SECONDS,
        load_seconds: float = STREAM_LOAD_SECONDS,
    ) -> None:
        """`stream` is an open file descriptor, or a path that is opened when the stream is read."""
        super().__init__(name)
        self._idle_seconds, self._load_seconds = idle_seconds, load_seconds
        self.size: int = 0
        self._stream = stream
        self._restart()

    def batches(self, stop: Event) -> Generator[LineBatch, None, None]:
        """Yield what can be read without waiting, and an empty batch after each idle period.

        If it is called again, it continues after the last delivered batch, since a stream cannot be read twice. A file
        that is opened by its path is read from the start.
        """
        if isinstance(self._stream, int):
            yield from self._batches(self._stream, stop)
        else:
            descriptor = open_without_waiting(self._stream, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    self._restart()
                yield from self._batches(descriptor, stop)
            finally:
                os.close(descriptor)

    def _restart(self) -> None:
        self._cutter = LineCutter()
        self._offset = 0
        # Whether a batch that was caught up was delivered. Later lines are not the first ones.
        self._is_loaded = False
        self._undelivered: LineBatch | None = None

    def _batches(self, descriptor: int, stop: Event) -> Generator[LineBatch, None, None]:
        status = os.fstat(descriptor)
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        loaded_at = monotonic() + self._load_seconds
        is_start, is_end = not self._is_loaded, False
        while not is_end and not stop.is_set():
            batch = self._undelivered = self._undelivered or self._read(descriptor, loaded_at)
            yield evolve(batch, is_start=is_start)
            self._undelivered = None
            self._is_loaded = self._is_loaded or batch.is_caught_up
            is_start, is_end = False, batch.is_end

    def _read(self, descriptor: int, loaded_at: float) -> LineBatch:
        chunk = _read_within(descriptor, self._idle_seconds)
        self._offset += len(chunk or b"")
        lines = list(self._cutter.feed(chunk or b""))
        # A file has an end, and is one batch after the other until then.
        is_caught_up = not chunk or (monotonic() > loaded_at and not self.size)
        unfinished = self._cutter.unfinished if is_caught_up else None
        return LineBatch(lines, unfinished, self._offset, self.size, is_end=chunk == b"")


def open_lines(source: str, *, follow: bool) -> LineFile | LineStream:
    """Open a file or a pipe by its path, or standard input by `-`. Raises `FeedError`.

    A file that is not followed is read as a stream, to its end.
    """
    if source == "-":
        try:
            os.read(_STANDARD_INPUT, 0)  # fails if it is closed or write-only
        except OSError as error:
            raise FeedError(f"standard input cannot be opened: {reason_of(error)}") from None
        return LineStream("standard input", _STANDARD_INPUT)
    name = shown_name(source)
    try:
        mode = Path(source).stat().st_mode
    except (OSError, ValueError) as error:
        raise FeedError(f"{name} cannot be opened: {reason_of(error)}") from None
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISREG(mode)):
        raise FeedError(f"{name} cannot be opened: it must be a regular file, a pipe or a character device")
    return LineFile(name, Path(source)) if follow and stat.S_ISREG(mode) else LineStream(name, source)


def _read_within(descriptor: int, seconds: float) -> bytes | None:
    """Return available bytes, empty at the end of the stream; None if none arrive within `seconds`."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = monotonic() + seconds
    while poll.poll(max(deadline - monotonic(), 0) * 1000):
        try:
            return os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            # Another process read the data. The stream does not block if a process that shares it set O_NONBLOCK.
            continue
    return None
