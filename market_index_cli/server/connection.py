"""One connection of a client, with limits on the size and the duration of a request, and on the number of connections.

Theory of operation
    uvicorn alone accepts a request head of any size, over any time, on any number of connections. Each of the three
    can exhaust the process: its memory, its event loop, or its file descriptors, which the feed needs as well.

    Size: the bytes since the last complete head or part of a body are counted as they arrive. The count is exact to
    one slice, because the parser reports a field only when it is complete. Trailers count too: they follow a body.

    Time: while no response is being made, the connection waits and has a deadline. After a response it is that of
    keep-alive; the first byte that follows replaces it by that of a request head, which further bytes do not extend. A
    connection that sent nothing yet has the deadline of a head too. So has the rest of a body after the response: no
    app reads it, so it is dropped, and the client can read the response meanwhile. A connection whose client has not
    read all of it waits longer. The server looks for missed deadlines whenever it ticks, because a timer per response
    would cost more time than all other limits.

    Number: above the limit, the connection that waits longest is closed to make room, whether for a request or for a
    client that does not read. If there is none, the new connection gets 503 before its request is read.
    So clients that send or read nothing cannot keep others out.

    Order: a request that is rejected gets its error after the responses to the requests before it, and none if it has
    a response already. Then the connection lingers, and what arrives is dropped.
"""

from __future__ import annotations

import os
import sys
from asyncio import Transport
from enum import Enum, auto
from math import inf
from typing import Any, Final, TypeAlias

from attrs import field, frozen
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from market_index import wire

MAX_HEAD_BYTES: Final = 64 * 1024
"""Decision 25."""

MAX_TARGET_BYTES: Final = 8 * 1024
"""Decision 25."""

MAX_PARAMETERS: Final = 32
"""Decision 25."""

RESERVED_DESCRIPTORS: Final = 64
"""Open files that connections leave to feeds, stores, logs and the event loop."""

_HEAD_TOO_LARGE: Final = 431, f"The request head must have at most {MAX_HEAD_BYTES} bytes"

_SLICE_BYTES: Final = 16 * 1024

_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1024 * 1024
"""How much longer a rejected client may send. If the socket were closed immediately, it would lose the response."""


def connections_allowed() -> int:
    """Return how many connections the limit of open files (RLIMIT_NOFILE) allows, at least 1."""
    sysconf = getattr(os, "sysconf", None)
    open_files: int = sysconf("SC_OPEN_MAX") if sysconf else 1024
    # A negative number says that there is no limit.
    return sys.maxsize if open_files < 0 else max(1, open_files - RESERVED_DESCRIPTORS)


@frozen
class Limits:
    """What one process allows its clients."""

    head_seconds: int = 10
    """How long a request head may take; also how long a new connection may be silent."""
    keep_alive_seconds: int = 5
    """How long an idle connection stays open after a response."""
    connections: int = field(factory=connections_allowed)
    """How many connections may be open."""


class _RequestRejected(Exception):
    """Ends the parser's work on a request that exceeds a limit."""


class _State(Enum):
    """What a connection does."""

    IDLE = auto()
    """It waits for the next request."""
    RECEIVING = auto()
    """It waits for the rest of a request, or for the first one."""
    ANSWERING = auto()
    """A response is being made."""
    CLOSING = auto()
    """It sent its last response, and waits until the client has read it."""


# Python 3.11 takes 0.2 µs for `_State.IDLE`, which is done several times per request.
_IDLE, _RECEIVING, _ANSWERING, _CLOSING = _State


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with limits. `waiting` is shared by all connections of a server."""

    # In the dictionary of uvicorn's attributes they would be more than 30, from which on each access takes longer.
    __slots__ = ("_limits", "_received", "_rejection", "_running", "_state", "_waiting")

    def __init__(self, *args: Any, limits: Limits, waiting: Waiting, **options: Any) -> None:
        super().__init__(*args, **options)
        # Both are read before the first request has begun.
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self._limits = limits
        self._waiting = waiting
        self._received = 0
        self._state = _RECEIVING
        # The response that is being made; in `cycle` uvicorn stores that to the last request.
        self._running: RequestResponseCycle | None = None
        # The error of the request that was rejected: all that follows is dropped.
        self._rejection: tuple[int, str] | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wait for the first request, or reject the connection."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections and not self._make_room():
            self.logger.warning("connection rejected: %d are open, which is the limit", self._limits.connections)
            self._rejection = 503, "Too many connections"
            self._write_error(*self._rejection)
            transport.close()
        else:
            self._wait(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more, and abandon the response that is being made."""
        self._waiting.pop(self, None)
        if self._running is not None:
            self._running.disconnected = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on to the parser, up to the limit."""
        if len(data) > _SLICE_BYTES:
            for start in range(0, len(data), _SLICE_BYTES):
                self.data_received(data[start : start + _SLICE_BYTES])
            return
        self._received += len(data)
        if self._rejection is not None:
            if self._received > _LINGER_BYTES:
                self.transport.close()
            return
        super().data_received(data)
        if self._received > MAX_HEAD_BYTES + _SLICE_BYTES and self._rejection is None:
            self._reject(*(self._excess() or _HEAD_TOO_LARGE))
        if self._state is _IDLE:
            self._state = _RECEIVING
            self._wait(self._limits.head_seconds)

    def on_headers_complete(self) -> None:
        """Check the size of the head and the target, then start the response."""
        self._rejection = self._excess()
        if self._rejection is not None:
            raise _RequestRejected
        self._received = 0
        self._state = _ANSWERING
        if not self.flow.write_paused:
            self._waiting.pop(self, None)
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        """Count anew: what follows is not yet a head or a trailer."""
        self._received = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Start the next response, send the error of a rejected request, or wait for a request."""
        if self.transport.is_closing():
            super().on_response_complete()
            self._state = _CLOSING
            self._wait(inf)
        elif self.pipeline:
            self._running = self.pipeline[-1][0]
            super().on_response_complete()
            if self._rejection is not None:
                self.flow.pause_reading()
        else:
            # As in uvicorn, without its timer.
            self.server_state.total_requests += 1
            self.flow.resume_reading()
            if self._rejection is None:
                self._state = _IDLE
                self._wait(self._limits.keep_alive_seconds)
            else:
                self._close_with(*self._rejection)

    def pause_writing(self) -> None:
        """Wait until the client has read enough."""
        super().pause_writing()
        self._wait(inf)

    def resume_writing(self) -> None:
        """Wait no more if a response is being made."""
        super().resume_writing()
        if self._state is _ANSWERING:
            self._waiting.pop(self, None)

    def close_or_wait(self) -> None:
        """Close, or wait once more if the client has not read all of a response.

        If a client sends on after the socket is closed, it loses what it has not read (RFC 9112, 9.6).
        """
        if self.transport.get_write_buffer_size():
            self._wait(self._limits.head_seconds)
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Send the error body when the parser stops, at a limit or because the request is not HTTP."""
        self._reject(*(self._rejection or (400, msg)))

    def _make_room(self) -> bool:
        """Close the connection that waits longest. Return whether there is one."""
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        self.logger.warning("idle connection closed: %d are open, which is the limit", self._limits.connections)
        del self._waiting[longest]
        longest.transport.abort()
        return True

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)

    def _excess(self) -> tuple[int, str] | None:
        """Return the status and the message for what exceeds a limit in the head received so far; None if nothing."""
        if len(self.url) > MAX_TARGET_BYTES:
            return 400, f"The request target must have at most {MAX_TARGET_BYTES} bytes"
        if self.url.count(b"&") >= MAX_PARAMETERS and self.url.partition(b"?")[2].count(b"&") >= MAX_PARAMETERS:
            return 400, f"The query must have at most {MAX_PARAMETERS} parameters"
        # The sum is exact, and is computed only for what may be too large.
        if self._received > MAX_HEAD_BYTES and self._head_bytes() > MAX_HEAD_BYTES:
            return _HEAD_TOO_LARGE
        return None

    def _reject(self, status: int, message: str) -> None:
        """Reject the request that is being received; its error is sent after the responses before it."""
        self._rejection = status, message
        if self._state is _ANSWERING:
            self.flow.pause_reading()
        else:
            self._close_with(status, message)

    def _close_with(self, status: int, message: str) -> None:
        """Send the error, read and drop what else arrives for a moment, and close."""
        self._state = _CLOSING
        # After its response was sent, the error of a request would be the response to the next one.
        if self.cycle is None or self.cycle.scope is not self.scope:
            self._write_error(status, message)
        self._wait(_LINGER_SECONDS)

    def _write_error(self, status: int, message: str) -> None:
        body = wire.error_to_json(message)
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = [*(b"%s: %s\r\n" % pair for pair in fields), b"\r\n", body]
        self.transport.write(STATUS_LINE[status] + b"".join(lines))

    def _wait(self, seconds: float) -> None:
        """Wait for the client for so many seconds; a connection that waits already keeps its place."""
        self._waiting[self] = self.loop.time() + seconds


Waiting: TypeAlias = dict[Connection, float]
"""The connections that wait for their clients, longest first, and their deadlines in the time of the event loop."""


def close_overdue(waiting: Waiting, now: float) -> None:
    """Close the connections whose deadline has passed and whose clients have read their responses."""
    for connection in [one for one, deadline in waiting.items() if deadline <= now]:
        connection.close_or_wait()
