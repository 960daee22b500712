"""Parses server-sent events, without I/O, as the HTML standard says (section "Interpreting an event stream").

- The stream is UTF-8. A byte-order mark at its start is no part of the first line.
- A line ends with LF, CR or CR LF. A CR ends its line immediately: an LF that follows belongs to it.
- An empty line ends an event. A block without data, such as a comment or `retry:`, is no event.

The fields `id` and `retry` are ignored. A source opens a stream again after a backoff of its own, and gets all books.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from attrs import frozen

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@frozen
class Event:
    """A server-sent event: its type, which is empty for an event without one, and its data."""

    name: bytes
    data: bytes


@final
class EventParser:
    r"""The events of one stream, whose bytes arrive in pieces.

    Args:
        max_bytes: The maximum size of the data of an event. A larger event is cut, so that it takes bounded memory. Its
            data still have more than `max_bytes`, so that its reader can reject it.

    >>> parser = EventParser(1000)
    >>> list(parser.parse(b"event: book\r\ndata: {}\r\n\r"))
    [Event(name=b'book', data=b'{}')]
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_line = len(b"data: ") + max_bytes + 1
        self._is_first_line, self._follows_return = True, False
        # The start of a line, and of the event that the next empty line ends, with the size of its data.
        self._line, self._name, self._data, self._size = bytearray(), b"", list[bytes](), 0

    @property
    def is_between_events(self) -> bool:
        """Whether no part of an event has arrived after the last one."""
        return not (self._line or self._data)

    def parse(self, received: bytes) -> Iterator[Event]:
        """Yield the events that end in the next piece of the stream."""
        if not received:
            return
        piece = received.removeprefix(b"\n") if self._follows_return else received
        self._follows_return = received.endswith(b"\r")
        *ends, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            line = end
            if self._line:
                line, self._line = bytes(self._line + end), bytearray()
            line = line[: self._max_line]
            yield from self._end_line(line.removeprefix(_BYTE_ORDER_MARK) if self._is_first_line else line)
            self._is_first_line = False
        self._line += rest
        del self._line[self._max_line :]

    def _end_line(self, line: bytes) -> Iterator[Event]:
        """Apply a line, and yield the event that it ends."""
        if not line:
            if self._data:
                yield Event(self._name, b"\n".join(self._data))
            self._name, self._data, self._size = b"", [], 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value
        elif field == b"data" and self._size <= self._max_bytes + 1:
            self._data.append(value)
            self._size += len(value) + 1
