"""One connection of a client, with limits on the size and the duration of a request, and on the number of connections.

Theory of operation
    uvicorn accepts a request head of any size, over any time, on any number of connections. Each of these can exhaust
    a resource of the process: its memory, its event loop, or its file descriptors, which the feed needs too.

    Size: the connection counts the bytes since the last complete head or the last part of a body. The count is exact to
    one slice, because the parser reports a field only when it is complete. Trailers count too: they follow a body.

    Time: a connection that waits for its client is in `waiting`, with a deadline.
    - A new connection has the deadline of a request head.
    - After a response, the deadline is that of keep-alive. The first byte of the next request sets the deadline of a
      request head, and further bytes do not extend it. The unread part of a request body counts as the next request:
      no app reads it, so it is dropped.
    - At its deadline the connection is closed, or gets another one if its client has not read the whole response.
    The server checks the deadlines at each tick, because a timer per response would cost more time than all other
    limits. Only the kernel knows whether a client accepts data, so it closes a connection that accepts none
    (`TCP_USER_TIMEOUT`, `http_server`).

    Number: above the limit, the connection that has waited longest is closed, whether it waits for a request or for a
    client that does not read. If no connection waits, the new connection gets 503 before its request is read. So
    clients that send or read nothing cannot block other clients.

    Order: the error of a rejected request is sent after the responses to the requests before it. A request that has a
    response already gets no error. Then the connection lingers, and received data is dropped.

    Cached responses are sent without uvicorn's task and its messages, which take longer than all the rest. They are
    sent once the event loop has read what has arrived on all connections. A response that must wait for the client to
    read, or for the close of the connection, is left to uvicorn.
"""

from __future__ import annotations

from asyncio import Transport
from collections.abc import Callable
from enum import Enum, auto
from http import HTTPStatus
from math import inf
from typing import Any, Final, TypeAlias, cast

from attrs import field, frozen
from starlette.types import Message, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from market_index.wire import error_to_json
from market_index_cli.descriptors import RESERVED_DESCRIPTORS, open_files_allowed

CachedResponse: TypeAlias = Callable[[Scope], tuple[Message, Message] | None]
"""Returns the start and the whole body of a response that is known without the app; None: the app must respond."""

MAX_HEAD_BYTES: Final = 64 * 1024
"""Decision 25."""

MAX_TARGET_BYTES: Final = 8 * 1024
"""Decision 25."""

MAX_PARAMETERS: Final = 32
"""Decision 25."""

_STATUS_LINES: Final = {one: f"HTTP/1.1 {one} {one.phrase}\r\n".encode() for one in HTTPStatus}

_HEAD_TOO_LARGE: Final = 431, f"The request head must have at most {MAX_HEAD_BYTES} bytes"

_SLICE_BYTES: Final = 16 * 1024

MAX_JOINED_BYTES: Final = 16 * 1024
"""The longest part of a body that is written together with the head."""

_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1024 * 1024
"""How long and how much a rejected client may still send. If the socket were closed, it would lose the response."""


def connections_allowed() -> int:
    """Return how many connections the limit of open files (RLIMIT_NOFILE) allows, at least 1."""
    return max(1, open_files_allowed() - RESERVED_DESCRIPTORS)


@frozen
class ClientLimits:
    """What the clients of one server process may do."""

    head_seconds: int = 10
    """The time for a request head, from its first byte or from the start of the connection."""
    keep_alive_seconds: int = 5
    """How long a connection may be idle after a response."""
    send_seconds: int = 30
    """How long a client may accept no byte of a response, on Linux."""
    connections: int = field(factory=connections_allowed)
    """The most open connections."""


class _RequestRejected(Exception):
    """Stops the parser at a request that exceeds a limit."""


class _Phase(Enum):
    """What a connection does."""

    IDLE = auto()
    """It waits for the next request."""
    RECEIVING = auto()
    """It waits for the first request, or for the remaining bytes of a request."""
    ANSWERING = auto()
    """A response is being made."""
    CLOSING = auto()
    """It has sent its last response, and waits until the client has read it."""


# Python 3.11 takes 0.2 µs to look up `_Phase.IDLE`, several times per request.
_IDLE, _RECEIVING, _ANSWERING, _CLOSING = _Phase


class JoinedWrites:
    """The transport of one response, which holds its head until the first part of its body.

    uvicorn writes them one after the other. Each write wakes the client, which takes longer than making the response.
    ASGI requires that the head is not sent before the app sends a part of the body.
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Write data after what is held; hold it if it is the head."""
        if self._head is None:
            self._head = data
        else:
            _write(self._transport, self._head, data)
            self._head = b""

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


def _write(transport: Transport, head: bytes, part: bytes) -> None:
    """Write a head, empty if it was written before, and a part of the body; together if the part is small.

    A large part is written by itself: while a client does not read, a copy with the head would be in memory, one for
    each client, instead of the bytes that all responses share.
    """
    if head and len(part) > MAX_JOINED_BYTES:
        transport.write(head)
        transport.write(part)
    else:
        transport.write(head + part)


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's protocol with limits. All connections of a server share `waiting`.

    `count` is called with the path, which is not known, and the status of each error that is sent here.
    `cached_response` is asked for each response first.

    uvicorn has no interface for this. Checked with 0.45 and 0.54; `TestUvicorn` names each attribute that is used.
    """

    # In `__dict__` there would be more than 30 attributes, with those of uvicorn, and each access would take longer.
    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # in uvicorn, it is None before the first request

    __slots__ = ("_cached_response", "_count", "_limits", "_phase", "_received", "_rejection", "_running", "_waiting")

    def __init__(
        self,
        *args: Any,
        limits: ClientLimits,
        waiting: Waiting,
        count: Count | None = None,
        cached_response: CachedResponse | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        # Both are read before uvicorn sets them at the first request.
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self._cached_response = cached_response
        self._count = count
        self._limits = limits
        self._waiting = waiting
        self._received = 0
        self._phase = _RECEIVING
        # The response that is being made. uvicorn's `cycle` is the response to the last request received.
        self._running: RequestResponseCycle | None = None
        # The status and message for the rejected request. All data after it is dropped.
        self._rejection: tuple[int, str] | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wait for the first request, or reject the connection."""
        super().connection_made(transport)
        if len(self.connections) <= self._limits.connections or self._make_room():
            self._wait(self._limits.head_seconds)
        else:
            self.logger.warning("connection rejected: %d are open, which is the limit", self._limits.connections)
            self._write_error(503, "Too many connections")
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, abandon the response that is being made, and drop the requests that were not started."""
        self._waiting.pop(self, None)
        # uvicorn marks only the response to the last request. On uvloop another one would fail with a traceback.
        if self._running is not None:
            self._running.disconnected = True
        super().connection_lost(exc)
        # Requests without a task refer to the connection, and such cycles might never be freed: see `pauses`.
        self.pipeline.clear()
        self.cycle = self._running = None

    def data_received(self, data: bytes) -> None:
        """Pass data to the parser, up to the limit."""
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

    def on_message_begin(self) -> None:
        """Wait for the remaining bytes of a request."""
        super().on_message_begin()
        self._begin_receiving()

    def on_headers_complete(self) -> None:
        """Check the size of the head and the target, then start the response."""
        self._rejection = self._excess()
        if self._rejection is not None:
            raise _RequestRejected
        self._received = 0
        self._phase = _ANSWERING
        if not self.flow.write_paused:
            self._waiting.pop(self, None)
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        """Restart the count of bytes at each part of a body."""
        self._received = 0
        self._begin_receiving()
        super().on_body(body)

    def _begin_receiving(self) -> None:
        if self._phase is _IDLE:
            self._phase = _RECEIVING
            self._wait(self._limits.head_seconds)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # After the event loop has read the requests of other connections: a write between two reads takes longer.
        self.loop.call_soon(self._respond, cycle, app)

    def _respond(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Send the response if it is cached, otherwise start the task of the app."""
        if self.transport.is_closing():
            return
        if self._cached_response is None or self.flow.write_paused or not cycle.keep_alive:
            messages = None
        else:
            messages = self._cached_response(cast(Scope, cycle.scope))
        if messages is None:
            # Otherwise there is no body, or the first thing written is not the head.
            if cycle.scope["method"] != "HEAD" and not cycle.waiting_for_100_continue:
                cycle.transport = cast(Transport, JoinedWrites(cycle.transport))
            super()._start_asgi_task(cycle, app)
            return
        start, body = messages
        _write(self.transport, _head(start["status"], [*cycle.default_headers, *start["headers"]]), body["body"])
        cycle.response_started = cycle.response_complete = True
        self.on_response_complete()

    def on_response_complete(self) -> None:
        """Start the next response, send the error of a rejected request, or wait for a request."""
        if self.transport.is_closing():
            self._phase = _CLOSING
            self._wait(inf)
        elif self.pipeline:
            self._running = self.pipeline[-1][0]
            super().on_response_complete()
        else:
            # As in uvicorn, without its timer.
            self.flow.resume_reading()
            if self._rejection is None:
                self._phase = _IDLE
                self._wait(self._limits.keep_alive_seconds)
            else:
                self._send_rejection(*self._rejection)

    def pause_writing(self) -> None:
        """Wait until the client reads."""
        super().pause_writing()
        self._wait(inf)

    def resume_writing(self) -> None:
        """Stop waiting if a response is being made."""
        super().resume_writing()
        if self._phase is _ANSWERING:
            self._waiting.pop(self, None)

    def close_or_wait(self) -> None:
        """Close, or wait again if the client has not read the whole response.

        If a client sends data after the socket is closed, it loses the unread part of the response (RFC 9112, 9.6).
        """
        if self.transport.get_write_buffer_size():
            self._wait(self._limits.head_seconds)
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Reject the request when the parser stops: it exceeds a limit, or is not HTTP."""
        self._reject(*(self._rejection or (400, msg)))

    def _make_room(self) -> bool:
        """Close the connection that has waited longest. Return whether there was one."""
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        self.logger.warning("idle connection closed: %d are open, which is the limit", self._limits.connections)
        del self._waiting[longest]
        longest.transport.abort()
        return True

    def _excess(self) -> tuple[int, str] | None:
        """Return the status and the message of the limit that the head received so far exceeds; None if none."""
        if len(self.url) > MAX_TARGET_BYTES:
            return 400, f"The request target must have at most {MAX_TARGET_BYTES} bytes"
        if self.url.partition(b"?")[2].count(b"&") >= MAX_PARAMETERS:
            return 400, f"The query must have at most {MAX_PARAMETERS} parameters"
        # The exact size is computed only for a head that may be too large.
        if self._received > MAX_HEAD_BYTES:
            fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)
            if len(self.url) + fields > MAX_HEAD_BYTES:
                return _HEAD_TOO_LARGE
        return None

    def _reject(self, status: int, message: str) -> None:
        """Reject the current request. Its error is sent after the responses to the requests before it."""
        self._rejection = status, message
        if self._phase is _ANSWERING:
            # So that more data does not end the connection before the response is sent.
            self.flow.pause_reading()
        else:
            self._send_rejection(status, message)

    def _send_rejection(self, status: int, message: str) -> None:
        """Send the error, drop further data until the deadline, and close."""
        self._phase = _CLOSING
        # If the request has a response already, the client would take an error as the response to its next request.
        if self.cycle is None or self.cycle.scope is not self.scope:
            self._write_error(status, message)
        self._wait(_LINGER_SECONDS)

    def _write_error(self, status: int, message: str) -> None:
        body = error_to_json(message)
        if self._count is not None:
            self._count("", status)
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        self.transport.writelines((_head(status, fields), body))

    def _wait(self, seconds: float) -> None:
        """Wait for the client for `seconds`. A connection that waits already keeps its position in the order."""
        self._waiting[self] = self.loop.time() + seconds


def _head(status: int, fields: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join([_STATUS_LINES[status], *[b"%b: %b\r\n" % field for field in fields], b"\r\n"])  # type: ignore[index]  # an HTTPStatus equals its number


Count: TypeAlias = Callable[[str, int], object]
"""Counts a response by the path of its request and its status."""

Waiting: TypeAlias = dict[LimitedConnection, float]
"""The connections that wait for their clients, longest first, with deadlines in seconds of the event loop's clock."""
