"""Lines of text, from a file that is followed or from a stream.

A file is appended to, or replaced by renaming another over it. Both are noticed, and so is a file that is written again
in place: it became shorter than what was read, or the last bytes that were read are others now. Other bytes that are
overwritten are not noticed.
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

from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.opened import shown_name
from market_index_feeds.regular_files import open_regular, open_without_waiting

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of a line, without its newline. A longer line is rejected, and never held in memory whole."""

POLL_SECONDS: Final = 0.1
"""Interval between two checks of a followed file."""

STREAM_PAUSE_SECONDS: Final = 0.25
STREAM_LOAD_SECONDS: Final = 10.0
"""A stream counts as loaded at its end or its first pause, but after so long at the latest."""

_STANDARD_INPUT: Final = 0
_CHUNK_BYTES: Final = 256 * 1024
_TAIL_BYTES: Final = 256
"""How many of the last bytes that were read are compared with the file: if they differ, it was overwritten in place."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@frozen
class Line:
    """A line: its number, from 1, and its text without the newline; None if it is longer than `MAX_LINE_BYTES`."""

    number: int
    text: bytes | None


@frozen
class LineBatch:
    """The lines that could be read at once. A batch without lines says that there was nothing new."""

    lines: list[Line]
    unfinished: Line | None
    """The last line, which has no newline yet; empty if there is none. None if there is more to read now."""

    offset: int
    """The bytes read so far."""

    size: int = 0
    """The bytes there are to read, as far as that is known."""

    is_start: bool = False
    """Whether the lines are the first of a file: those of the file before it are gone."""

    is_end: bool = False
    """Whether no more lines will come."""

    problem: str | None = None
    """Why the file cannot be found at its path, although it is still read."""

    @property
    def is_caught_up(self) -> bool:
        """Whether there was no more to read at the time."""
        return self.unfinished is not None


class LineCutter:
    """Cuts chunks of bytes into numbered lines, with no more than one line of the legal length in memory."""

    def __init__(self) -> None:
        self._number = 0
        self._unfinished = bytearray()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that end within the chunk."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            line = self.unfinished
            self._number += 1
            self._unfinished.clear()
            self._is_too_long = False
            yield line
        self._add(rest)

    @property
    def unfinished(self) -> Line:
        """The line that has no newline yet."""
        if self._is_too_long:
            return Line(self._number + 1, None)
        text = bytes(self._unfinished)
        return Line(self._number + 1, text if self._number else text.removeprefix(_BYTE_ORDER_MARK))

    def _add(self, piece: bytes) -> None:
        if len(self._unfinished) + len(piece) > MAX_LINE_BYTES:
            self._is_too_long = True
        if self._is_too_long:
            self._unfinished.clear()
        else:
            self._unfinished += piece


class LineSource(ABC):
    """Lines that are read, and then followed until they end. `name` is what messages call them."""

    is_stream: ClassVar[bool]
    """Whether the lines can be read once, by one process, and come to an end."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def batches(self, stop: Event) -> Generator[LineBatch, None, None]:
        """Yield batches until `stop` is set or the lines end. Raises `OSError`."""


class LineFile(LineSource):
    """A file of lines that is followed for ever."""

    is_stream = False

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self._path = path

    def batches(self, stop: Event) -> Generator[LineBatch, None, None]:
        """Yield all that the file contains, then what is appended to it, and the whole of a file that replaces it."""
        while not stop.is_set():
            with open_regular(self._path) as file:
                yield from self._batches(file, stop)

    def _batches(self, file: FileIO, stop: Event) -> Generator[LineBatch, None, None]:
        """Yield the lines of one open file until another one is at the path, or it was truncated."""
        cutter, offset, is_start, problem, tail = LineCutter(), 0, True, None, b""
        while not stop.is_set():
            chunk = file.read(_CHUNK_BYTES) or b""
            if not chunk and not is_start:
                if stop.wait(POLL_SECONDS):
                    return
                problem = None
                try:
                    is_over = not self._is_at_path(file) or os.fstat(file.fileno()).st_size < offset
                except FileNotFoundError as error:
                    # It may still be appended to, by a program that has it open.
                    is_over, problem = False, reason_of(error)
                # After the check: what was appended before the file was replaced is read.
                chunk = file.read(_CHUNK_BYTES) or b""
                if is_over and not chunk:
                    return
            # After reading: what was read may be the end of other content.
            if os.pread(file.fileno(), len(tail), offset - len(tail)) != tail:
                return
            offset += len(chunk)
            tail = (tail + chunk)[-_TAIL_BYTES:]
            size = max(os.fstat(file.fileno()).st_size, offset)
            lines = list(cutter.feed(chunk))
            unfinished = cutter.unfinished if offset == size else None
            yield LineBatch(lines, unfinished, offset, size, is_start, problem=problem)
            is_start = False

    def _is_at_path(self, file: FileIO) -> bool:
        return os.path.samestat(self._path.stat(), os.fstat(file.fileno()))


class LineStream(LineSource):
    """Standard input or a pipe, read until it ends. A file can be read as a stream too: once, to its end.

    `size` is the number of bytes of a file, else 0.
    """

    is_stream = True

    def __init__(self, name: str, stream: int | str) -> None:
        """`stream` is an open descriptor, or the path of what is opened when it is read."""
        super().__init__(name)
        self.size: int = 0
        self._stream = stream
        self._restart()

    def batches(self, stop: Event) -> Generator[LineBatch, None, None]:
        """Yield what can be read without waiting, and an empty batch after each `STREAM_PAUSE_SECONDS` of silence.

        If it is called again, it continues after the last batch that was delivered: a stream cannot be read again. Only
        a file that is opened by its path is.
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
        # Whether a batch was delivered that was caught up: the lines after it do not start anew.
        self._is_loaded = False
        self._undelivered: LineBatch | None = None

    def _batches(self, descriptor: int, stop: Event) -> Generator[LineBatch, None, None]:
        found = os.fstat(descriptor)
        self.size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        loaded_at = monotonic() + STREAM_LOAD_SECONDS
        is_start, is_end = not self._is_loaded, False
        while not is_end and not stop.is_set():
            batch = self._undelivered = self._undelivered or self._read(descriptor, loaded_at)
            yield evolve(batch, is_start=is_start)
            self._undelivered = None
            self._is_loaded = self._is_loaded or batch.is_caught_up
            is_start, is_end = False, batch.is_end

    def _read(self, descriptor: int, loaded_at: float) -> LineBatch:
        chunk = _read_within(descriptor, STREAM_PAUSE_SECONDS)
        self._offset += len(chunk or b"")
        lines = list(self._cutter.feed(chunk or b""))
        unfinished = self._cutter.unfinished if not chunk or monotonic() > loaded_at else None
        return LineBatch(lines, unfinished, self._offset, self.size, is_end=chunk == b"")


def open_lines(source: str) -> LineFile | LineStream:
    """Open a file or a pipe by its path, or standard input by `-`, to be followed. Raises `FeedError`."""
    stream = open_stream(source)
    if source == "-" or not Path(source).is_file():
        return stream
    return LineFile(stream.name, Path(source))


def open_stream(source: str) -> LineStream:
    """Open a file or a pipe by its path, or standard input by `-`, to be read once, to its end. Raises `FeedError`."""
    if source == "-":
        try:
            # Fails for a stream that is closed or write-only.
            os.read(_STANDARD_INPUT, 0)
        except OSError as error:
            raise FeedError(f"standard input cannot be opened: {reason_of(error)}") from None
        return LineStream("standard input", _STANDARD_INPUT)
    name = shown_name(source)
    try:
        mode = Path(source).stat().st_mode
    except (OSError, ValueError) as error:
        raise FeedError(f"{name} cannot be opened: {reason_of(error)}") from None
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISREG(mode)):
        raise FeedError(f"{name} cannot be opened: it is not a file")
    return LineStream(name, source)


def _read_within(descriptor: int, seconds: float) -> bytes | None:
    """Return what can be read, empty at the end; None if nothing came within so many seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = monotonic() + seconds
    while poll.poll(max(deadline - monotonic(), 0) * 1000):
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            # Another process has read it; ours may not block, because it shares the stream with one that set it so.
            continue
    return None
