"""Limits on what clients may hold, for any version of uvicorn.

uvicorn accepts a request head of any size, over any time, on any number of connections.

- Size: a request head above `MAX_HEAD_BYTES` gets 431.
- Time: a connection whose next request head takes longer than `HEAD_SECONDS` is closed, after the client has read the
  last response. uvicorn closes an idle one after 5 seconds.
- Number: above the limit, the connection that has waited longest for its client is closed, one that has received all
  of its responses first. If none waits, the new connection gets 503.
- Incomplete responses, such as of a stream whose client accepts nothing, are cut: uvicorn would wait for the client.

Theory of operation
    `Limits` overrides only methods of `asyncio.Protocol` and callbacks of httptools. Both call them by their names, so
    they are called whatever uvicorn does. A connection counts its requests when a head is complete, and its responses
    when `WithLimits`, the app of the server, has returned. The task of the app has a copy of the context of the
    connection, in which `_CONNECTION` is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, final

from attrs import define, field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from market_index_http.operating.counting import OTHER, CountingSend, Responses
from market_index_http.responses import Fields, error_response

MAX_HEAD_BYTES: Final = 64 * 1024
"""Decision 25."""

HEAD_SECONDS: Final = 10
"""How long a request head may take, from the start of its connection or the end of the last response."""

FIELDS: Final = (("x-content-type-options", "nosniff"), ("cross-origin-resource-policy", "same-origin"))
"""Header fields of every response."""

_HEAD_LIMIT: Final = f"The request head must have at most {MAX_HEAD_BYTES} bytes"

_STATUS_LINES: Final = {one.value: b"HTTP/1.1 %d %b\r\n" % (one, one.phrase.encode("ascii")) for one in HTTPStatus}


@final
@define(eq=False)
class Clients:
    """What the connections of a server share."""

    max_connections: int
    responses: Responses
    clock: Callable[[], float] = monotonic
    connections: set[Limits] = field(factory=set)
    waiting: dict[Limits, float] = field(factory=dict)
    """The connections that wait for their clients, longest first, with deadlines of the clock."""
    closed: int = 0
    """How many connections were closed because of a limit."""

    def wait(self, connection: Limits) -> None:
        """Wait for the next request of an open connection."""
        if connection in self.connections:
            self.waiting[connection] = self.clock() + HEAD_SECONDS

    def close_overdue(self) -> None:
        """Close overdue connections, each once its client has read the last response."""
        now = self.clock()
        for connection in [one for one, deadline in self.waiting.items() if deadline <= now]:
            self.closed += not connection.channel.is_closing()
            connection.channel.close()


class Limits(HttpToolsProtocol):
    """uvicorn's protocol with limits."""

    # In `__dict__` they would make every access slower: with those of uvicorn, there would be more than 30 attributes.
    __slots__ = ("_clients", "_unanswered", "_unparsed_bytes", "channel", "may_have_large_head", "received")

    channel: asyncio.Transport
    """The transport, by a name that uvicorn does not use."""
    may_have_large_head: bool
    """Whether more bytes than a head may have were ever received together."""
    received: float
    """The monotonic time of the last data, or of the connection."""

    def __init__(self, *args: Any, clients: Clients, **options: Any) -> None:
        super().__init__(*args, **options)
        self._clients = clients
        # Bytes since the last complete head or part of a body: of a head, of trailers, or of empty lines.
        self._unparsed_bytes = 0
        self.may_have_large_head = False
        # Requests whose response is not complete.
        self._unanswered = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wait for the first request. Above the limit of connections, close the one that has waited longest."""
        self.channel, self.received = transport, monotonic()
        super().connection_made(transport)
        clients = self._clients
        clients.connections.add(self)
        clients.wait(self)
        if len(clients.connections) > clients.max_connections:
            # This one is the last of them. The others may still be receiving a response.
            longest = next(one for one in clients.waiting if not one.channel.get_write_buffer_size())
            if longest is self:
                longest = next(iter(clients.waiting))
            if longest is self:
                self.refuse(503, "Too many connections")
            else:
                del clients.waiting[longest]
                clients.closed += 1
                longest.channel.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._clients.connections.discard(self)
        self._clients.waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data to the parser. An incomplete head above the limit gets 431."""
        self.received = monotonic()
        self._unparsed_bytes += len(data)
        if self._unparsed_bytes > MAX_HEAD_BYTES:
            self.may_have_large_head = True
        HttpToolsProtocol.data_received(self, data)  # twice in a response, `super` takes 3 % of its time
        if self._unparsed_bytes > MAX_HEAD_BYTES:
            self.refuse(431, _HEAD_LIMIT)

    def on_headers_complete(self) -> None:
        """Stop waiting."""
        self._unparsed_bytes = 0
        _CONNECTION.set(self)
        HttpToolsProtocol.on_headers_complete(self)
        self._unanswered += 1
        self._clients.waiting.pop(self, None)

    def on_body(self, body: bytes) -> None:
        """Restart the count of bytes."""
        self._unparsed_bytes = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser rejects. If uvicorn renames this method, it sends a text instead."""
        self.refuse(400, msg)

    def end_response(self) -> None:
        """Wait for the next request, unless another one has no response yet."""
        self._unanswered -= 1
        if not self._unanswered:
            self._clients.wait(self)

    def refuse(self, status: int, message: str) -> None:
        """Send an error and close the connection. While another response is being sent, only close it."""
        if not self._unanswered and not self.channel.is_closing():
            response = refusal(status, message)
            fields = [(name.encode("ascii"), text.encode("ascii")) for name, text in FIELDS]
            fields += [(b"date", formatdate(usegmt=True).encode("ascii")), *response.raw_headers]
            self._clients.responses[OTHER].add(status, monotonic() - self.received, len(response.body))
            self._clients.closed += status != HTTPStatus.BAD_REQUEST
            self.channel.write(encoded_head(status, (*fields,)) + response.body)
        self.channel.close()


_CONNECTION: Final[ContextVar[Limits]] = ContextVar("connection")
"""The connection of a request."""


@final
class WithLimits:
    """The app of a server whose connections are `Limits`.

    Args:
        app: The app that it calls.
        clients: The clients of the server.
        on_response: Called at the end of each response of the app with its scope, status, and duration in seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        clients: Clients,
        on_response: Callable[[Scope, int, float], object] = lambda *_: None,
    ) -> None:
        self._app = app
        self._clients = clients
        self._on_response = on_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app, unless the head is too large. Cut a response that it has not completed."""
        connection, app, path = _CONNECTION.get(), self._app, scope["path"]
        # The bytes that were received together may be those of many pipelined requests.
        if connection.may_have_large_head and _head_bytes(scope) > MAX_HEAD_BYTES:
            app, path = refusal(431, _HEAD_LIMIT), OTHER
        start = connection.received
        response = CountingSend(send, self._clients.responses[path], scope, start)
        try:
            await app(scope, receive, response)
        finally:
            if response.status and not response.is_complete:
                connection.channel.abort()
                await asyncio.sleep(0)  # uvicorn then knows that the client is disconnected
            connection.end_response()
            if app is self._app:
                self._on_response(scope, response.status, monotonic() - start)


@lru_cache(maxsize=1024)  # formatting takes longer than all else of a cached response
def encoded_head(status: int, fields: Fields) -> bytes:
    """Return the bytes of the head of a response."""
    return b"".join([_STATUS_LINES[status], *[b"%b: %b\r\n" % field for field in fields], b"\r\n"])


def refusal(status: int, message: str) -> Response:
    """Return an error after which the connection is closed."""
    return error_response(HTTPException(status, message, {"Connection": "close"}))


def _head_bytes(scope: Scope) -> int:
    """Return the size of a head: its target, and its fields with their separators."""
    query: bytes = scope["query_string"]
    target = len(scope["raw_path"]) + (len(b"?") + len(query) if query else 0)
    return target + sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
