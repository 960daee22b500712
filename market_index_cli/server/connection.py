"""One connection of a client, with limits on the size and the duration of a request, and on the number of connections.

Theory of operation
    uvicorn alone accepts a request head of any size, over any time, on any number of connections. Each of the three
    can exhaust the process: its memory, its event loop, or its file descriptors, which the feed needs as well.

    Size: the bytes since the last complete head or part of a body are counted as they arrive. The count is exact to
    one slice, because the parser reports a field only when it is complete. Trailers count too: they follow a body.

    Time: while no response is being made, one timer runs. It is uvicorn's keep-alive timer until a byte arrives, and
    then the head timer, which further bytes do not extend. A connection that sent nothing yet has the head timer too.

    Number: above the limit, the connection that waits longest is closed to make room: for a request, or after its
    timer for a client that does not read. If there is none, the new connection gets 503 before its request is read.
    So clients that send or read nothing cannot keep others out.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Final

from attrs import field, frozen
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

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


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with limits."""

    def __init__(
        self, *args: Any, limits: Limits, waiting: dict[Connection, asyncio.TimerHandle], **options: Any
    ) -> None:
        super().__init__(*args, **options)
        # Both are read before the first request has begun.
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self._limits = limits
        self._received = 0
        # The connections that wait for a request, or whose client does not read what it asked for, and their timers.
        # The one that waits longest is first.
        self._waiting = waiting
        self._rejection: tuple[int, str] | None = None
        self._is_rejected = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start the head timer, or reject the connection."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections and not self._make_room():
            self.logger.warning("connection rejected: %d are open, which is the limit", self._limits.connections)
            self._write_error(503, "Too many connections")
            self._is_rejected = True
            transport.close()
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Note since when the connection is idle."""
        super().on_response_complete()
        if self.transport.is_closing():
            # It closes once the client has read the response.
            self._start_head_timer()
        elif self.timeout_keep_alive_task is not None:
            self._waiting[self] = self.timeout_keep_alive_task

    def data_received(self, data: bytes) -> None:
        """Pass data on to the parser, up to the limit."""
        if self.timeout_keep_alive_task is not None:
            self._stop_timer()
        for start in range(0, len(data), _SLICE_BYTES):
            if self._is_rejected:
                self._drop(data)
                return
            part = data[start : start + _SLICE_BYTES] if len(data) > _SLICE_BYTES else data
            self._received += len(part)
            super().data_received(part)
            if self._received > MAX_HEAD_BYTES + _SLICE_BYTES and not self._is_rejected:
                self._reject(*(self._excess() or _HEAD_TOO_LARGE))
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self not in self._waiting and not is_answering:
            self._start_head_timer()

    def on_headers_complete(self) -> None:
        """Check the size of the head and the target, then start the response."""
        self._stop_timer()
        self._rejection = self._excess()
        if self._rejection is not None:
            raise _RequestRejected
        self._received = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count anew: what follows is not yet a head or a trailer."""
        self._received = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Send the error body when the parser stops, at a limit or because the request is not HTTP."""
        self._reject(*(self._rejection or (400, msg)))

    def _make_room(self) -> bool:
        """Close the connection that waits longest. Return whether there is one."""
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        self.logger.warning("idle connection closed: %d are open, which is the limit", self._limits.connections)
        self._waiting.pop(longest).cancel()
        longest.transport.abort()
        return True

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)

    def _excess(self) -> tuple[int, str] | None:
        """Return the status and the message for what exceeds a limit in the head received so far; None if nothing."""
        if len(self.url) > MAX_TARGET_BYTES:
            return 400, f"The request target must have at most {MAX_TARGET_BYTES} bytes"
        if self.url.partition(b"?")[2].count(b"&") >= MAX_PARAMETERS:
            return 400, f"The query must have at most {MAX_PARAMETERS} parameters"
        # The sum is exact, and is computed only for what may be too large.
        if self._received > MAX_HEAD_BYTES and self._head_bytes() > MAX_HEAD_BYTES:
            return _HEAD_TOO_LARGE
        return None

    def _reject(self, status: int, message: str) -> None:
        """Send the error, read and drop what else arrives for a moment, and close."""
        self._is_rejected = True
        self._stop_timer()
        self._write_error(status, message)
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _drop(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > _LINGER_BYTES:
            self.transport.close()

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

    def _start_head_timer(self) -> None:
        self._waiting[self] = self.loop.call_later(self._limits.head_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        timer = self._waiting.pop(self, None)
        if timer is not None:
            timer.cancel()
