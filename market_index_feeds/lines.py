"""Reads numbered lines from a file, which it follows, or from a stream. Subclasses of `LineSource` read their content.

Theory of operation
===================

    MORE ◀───▶ CAUGHT_UP
      └───▶ ENDED ◀───┘

- MORE: More bytes can be read now. The lines so far may be a part of what was written.
- CAUGHT_UP: All bytes so far are read. More may follow.
- ENDED: A stream has no more bytes. A file that is followed never ends.

A file is appended to, or another file is renamed over it. A file that is shorter than what was read is read again, as
after a log rotation that copies and truncates it. Other changes in place are not noticed.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Generator, Iterator
from enum import Enum
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

from attrs import frozen

from market_index import wire
from market_index_feeds.names import STANDARD_INPUT, shown_file
from market_index_feeds.regular_files import open_regular, open_without_waiting
from market_index_feeds.source import Source

MAX_LINE_BYTES: Final = wire.MAX_ORDER_BOOK_BYTES
"""The maximum length of a line, without its newline. A longer one is never in memory as a whole."""

POLL_SECONDS: Final = 0.1
"""Interval between two checks of a file, and between two batches of a stream that delivers nothing."""

IDLE_SECONDS: Final = 0.25
"""How long a stream delivers nothing until its first lines count as its content."""

LOAD_SECONDS: Final = 1.0
"""How long the lines of a stream that is never idle are gathered."""

CHUNK_BYTES: Final = 256 * 1024

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@frozen
class Line:
    """A line: its number, from 1, its text without the newline, and why it cannot be read, None if it can."""

    number: int
    text: bytes
    fault: str | None = None


class Reading(Enum):
    """The states of reading, and what there is to read; see the module docstring."""

    MORE = "more bytes now"
    CAUGHT_UP = "perhaps more bytes later"
    ENDED = "nothing more"


@frozen
class Batch:
    """The lines of one read, of `offset` bytes so far and `size` in total; both are 0 for a stream.

    `is_start`: whether they are the first ones of a file, so that what was read before belongs to other content.
    `reading` is the state after them. `tail` is the last line of a file that is caught up, if it has no newline yet.
    """

    lines: list[Line]
    is_start: bool
    reading: Reading
    tail: Line | None = None
    offset: int = 0
    size: int = 0


class LineSource(Source):
    """The lines of a file that is followed, or of a stream: standard input (`-`), a pipe, or a file up to its end."""

    def __init__(self, path: str | os.PathLike[str], *, is_stream: bool) -> None:
        super().__init__(shown_file(os.fspath(path)))
        self.is_stream = is_stream
        # The process may change its working directory.
        self._path = path if path == STANDARD_INPUT else Path(path).absolute()

    def _batches(self, stop: Event) -> Generator[Batch, None, None]:
        """Yield the lines. Raises `OSError`."""
        return read_stream(self._path, stop) if self.is_stream else follow(Path(self._path), stop)


class LineCutter:
    """Cuts chunks of bytes into numbered lines. `size` is the number of bytes of the lines that were cut."""

    def __init__(self) -> None:
        self.size: int = 0
        self._number = 0
        self._rest = bytearray()
        self._rest_size = 0

    def cut(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that end in the chunk."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._keep(end)
            line = self._line()
            self._number += 1
            self.size += self._rest_size + 1
            self._rest.clear()
            self._rest_size = 0
            yield line
        self._keep(rest)

    @property
    def tail(self) -> Line | None:
        """The last line, which has no newline yet; None if it is empty."""
        return self._line() if self._rest_size else None

    def _line(self) -> Line:
        number, text = self._number + 1, bytes(self._rest)
        if self._rest_size > MAX_LINE_BYTES:
            return Line(number, b"", f"must have at most {MAX_LINE_BYTES} bytes")
        return Line(number, text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text)

    def _keep(self, piece: bytes) -> None:
        self._rest_size += len(piece)
        if self._rest_size > MAX_LINE_BYTES:
            self._rest.clear()
        else:
            self._rest += piece


def follow(path: Path, stop: Event) -> Generator[Batch, None, None]:
    """Yield the content of a file, then what is appended; again from the start for each file that replaces it.

    A check that finds nothing yields an empty batch. Raises `OSError`.
    """
    while not stop.is_set():
        with open_regular(path) as file:
            cutter, offset, is_start = LineCutter(), 0, True
            while not stop.is_set():
                chunk = file.read(CHUNK_BYTES) or b""
                offset += len(chunk)
                size = max(os.fstat(file.fileno()).st_size, offset)
                lines = list(cutter.cut(chunk))
                if len(chunk) == CHUNK_BYTES:
                    yield Batch(lines, is_start, Reading.MORE, offset=offset, size=size)
                    is_start = False
                else:
                    yield Batch(lines, is_start, Reading.CAUGHT_UP, cutter.tail, offset, size)
                    is_start = False
                    stop.wait(POLL_SECONDS)
                    status = path.stat()
                    if not os.path.samestat(status, os.fstat(file.fileno())) or status.st_size < offset:
                        break


def read_stream(source: str | os.PathLike[str], stop: Event) -> Generator[Batch, None, None]:
    """Yield what a stream delivers, until it ends: `-` for standard input, or the path of a pipe or a file.

    A file is one batch after the other until its end. Raises as `follow`.
    """
    is_standard_input = source == STANDARD_INPUT
    descriptor = 0 if is_standard_input else open_without_waiting(os.fspath(source), os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        cutter, offset, is_start = LineCutter(), 0, True
        idle_seconds, started_at = IDLE_SECONDS, monotonic()
        while not stop.is_set():
            chunk = _read_within(descriptor, POLL_SECONDS)
            offset += len(chunk or b"")
            lines = list(cutter.cut(chunk or b""))
            reading = Reading.MORE
            if chunk == b"":
                reading = Reading.ENDED
            elif chunk is None or (
                not size and (monotonic() > started_at + LOAD_SECONDS or not _is_readable(descriptor, idle_seconds))
            ):
                reading, idle_seconds, started_at = Reading.CAUGHT_UP, 0, monotonic()
            if reading is Reading.ENDED and (last := cutter.tail) is not None:
                lines.append(last)
            yield Batch(lines, is_start, reading, offset=offset if size else 0, size=size)
            is_start = False
            if reading is Reading.ENDED:
                return
    finally:
        if not is_standard_input:
            os.close(descriptor)


def _read_within(descriptor: int, seconds: float) -> bytes | None:
    """Return available bytes, empty at the end of the stream; None if none arrive within `seconds`."""
    if not _is_readable(descriptor, seconds):
        return None
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        # Another process read the bytes. The stream does not block if a process that shares it set O_NONBLOCK.
        return None


def _is_readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
