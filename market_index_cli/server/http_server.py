"""uvicorn with cached responses, and with limits on what clients may hold. Only this module imports uvicorn.

uvicorn accepts a request head of any size, over any time, on any number of connections. The limits are:

- Size: a request head above `MAX_HEAD_BYTES` gets 431.
- Time: a connection whose next request head takes longer than `HEAD_SECONDS` is closed, after the client has read the
  last response. uvicorn closes an idle one after 5 seconds.
- Number: above the limit, the connection that has waited longest for its client is closed. If none waits, the new
  connection gets 503.

Cached responses are sent without a task and ASGI messages, which takes a third less time. uvicorn has no interface for
this and none for the limits. Tests of `tests/market_index_cli/server/test_http_server.py` fail if a name has another
meaning:

| name of uvicorn | used to |
|---|---|
| `HttpToolsProtocol._start_asgi_task(cycle, app)` | send a cached response without a task; cut an incomplete one |
| `cycle.scope`, `.keep_alive` | make the response, unless it must close the connection |
| `cycle.response_complete` | mark a cached response as sent, and know whether one is being sent |
| `cycle.response_started` | cut an incomplete response |
| `flow.write_paused` | leave a response to uvicorn that must wait until the client reads |
| `on_headers_complete()`, `on_body(body)`, `on_response_complete()` | start and stop the limits |
| `send_400_response(message)` | send our error body if the parser fails |
| `url`, `headers`, `pipeline`, `connections`, `server_state.default_headers` | measure a head; count; send errors |
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias, cast

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from market_index.wire import error_to_json
from market_index_cli.errors import EXIT_USAGE, Failed
from market_index_cli.logs import LOG

Respond: TypeAlias = Callable[[Scope], Response | None]
"""Returns the response to a request; None: the app must be called."""

MAX_HEAD_BYTES: Final = 64 * 1024
"""Decision 25."""

HEAD_SECONDS: Final = 10
"""How long a request head may take, from the start of its connection or the end of the last response."""

GRACE_SECONDS: Final = 10
"""How long a shutdown waits for responses."""

_RESERVED_DESCRIPTORS: Final = 64
"""File descriptors reserved for feeds, stores, logs and the event loop."""


MIN_OPEN_FILES: Final = 2 * _RESERVED_DESCRIPTORS


def connections_allowed() -> int:
    """Return how many connections the limit of open files (`ulimit -n`) allows.

    Raises `Failed` if it is below `MIN_OPEN_FILES`.
    """
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if open_files < MIN_OPEN_FILES:
        raise Failed(
            EXIT_USAGE, f"the limit of open files (ulimit -n) must be at least {MIN_OPEN_FILES}, got {open_files}"
        )
    return open_files - _RESERVED_DESCRIPTORS


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with the limits and the cached responses of its server."""

    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # in uvicorn, it is None before the first request

    # In `__dict__` they would make every access slower: with those of uvicorn, there would be more than 30 attributes.
    __slots__ = ("_respond", "_served", "_unparsed_bytes")

    def __init__(self, *args: Any, served: Server, **options: Any) -> None:
        super().__init__(*args, **options)
        # uvicorn sets both at the first byte of a request.
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self._served = served
        self._respond = served.respond
        # Bytes since the last complete head or part of a body.
        self._unparsed_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wait for the first request. Above the limit of connections, close the one that has waited longest."""
        super().connection_made(transport)
        waiting = self._served.waiting
        waiting[self] = self.loop.time() + HEAD_SECONDS
        if len(self.connections) > self._served.max_connections:
            longest = next(iter(waiting))
            if longest is self:
                self._refuse(503, "Too many connections")
            else:
                del waiting[longest]
                longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._served.waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data to the parser. An incomplete head above the limit gets 431."""
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._unparsed_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def on_headers_complete(self) -> None:
        """Check the exact size of a head, and stop waiting."""
        if self._has_large_head():
            raise ValueError  # the parser stops, and uvicorn calls `send_400_response`
        self._unparsed_bytes = 0
        self._served.waiting.pop(self, None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Restart the count of bytes."""
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next request, or start the next response."""
        if not self.pipeline:
            self._served.waiting[self] = self.loop.time() + HEAD_SECONDS
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser rejects."""
        if self._has_large_head():
            self._refuse_head()
        else:
            self._refuse(400, msg)

    def _has_large_head(self) -> bool:
        if self._unparsed_bytes <= MAX_HEAD_BYTES:
            return False
        # The bytes may contain many pipelined requests.
        fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)
        return len(self.url) + fields > MAX_HEAD_BYTES

    def _refuse_head(self) -> None:
        self._refuse(431, f"The request head must have at most {MAX_HEAD_BYTES} bytes")

    def _refuse(self, status: int, message: str) -> None:
        """Send an error and close the connection. While another response is being sent, only close it."""
        if self.cycle is None or self.cycle.response_complete:
            body = error_to_json(message)
            fields = [
                *self.server_state.default_headers,
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            self._served.count("", status)
            self.transport.write(_head(status, fields) + body)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # After the event loop has read the requests of other connections: a write between two reads takes longer. This
        # also limits the recursion for pipelined requests.
        self.loop.call_soon(self._send, cycle, app)

    def _send(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Send the response, or start the task of the app."""
        if self.transport.is_closing():
            return
        response = None
        if self._respond is not None and cycle.keep_alive and not self.flow.write_paused:
            response = self._response(cast(Scope, cycle.scope))
        if response is None:
            super()._start_asgi_task(cycle, partial(self._run, cycle, app))
            return
        self._served.count(cycle.scope["path"], response.status_code)
        fields = [*self.server_state.default_headers, *response.raw_headers]
        content = b"" if cycle.scope["method"] == "HEAD" else bytes(response.body)
        self.transport.write(_head(response.status_code, fields) + content)
        cycle.response_complete = True
        self.on_response_complete()

    def _response(self, scope: Scope) -> Response | None:
        """Return the response that needs no task."""
        try:
            response = None if self._respond is None else self._respond(scope)
        except Exception:  # noqa: BLE001  # the app raises it too; Starlette responds to it and logs it
            return None
        # uvicorn closes the connection after the response to an excessive target.
        return (
            None
            if response is not None and response.status_code == 400 and "connection" in response.headers
            else response
        )

    async def _run(self, cycle: RequestResponseCycle, app: ASGIApp, *call: Any) -> None:
        await app(*call)
        if cycle.response_started and not cycle.response_complete:
            # A stream whose client accepts nothing has ended: to close the connection would wait for the client.
            self.transport.abort()
            await asyncio.sleep(0)  # uvicorn then knows that the client is disconnected


_STATUS_LINES: Final = {one.value: b"HTTP/1.1 %d %b\r\n" % (one, one.phrase.encode("ascii")) for one in HTTPStatus}


def _head(status: int, fields: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join([_STATUS_LINES[status], *[b"%b: %b\r\n" % field for field in fields], b"\r\n"])


class Server(uvicorn.Server):
    """Serves one app.

    Args:
        app: The app.
        respond: Returns a response that is sent without a call of the app, or None. Not used with `access_log`.
        access_log: Whether each response is logged.
        proxies: The addresses whose `X-Forwarded-For` is trusted; `*` is any address.
        max_connections: The limit of open connections; None: `connections_allowed()`.
        count: Called with the path and the status of each response that the app does not send; the path of an error
            is empty.
        on_second: Called about once per second, in a thread, with the number of open connections.
        on_shutdown: Called before the shutdown waits for responses.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        respond: Respond | None = None,
        access_log: bool = False,
        proxies: Sequence[str] = (),
        max_connections: int | None = None,
        count: Callable[[str, int], object] = lambda *_: None,
        on_second: Callable[[int], object] = lambda _: None,
        on_shutdown: Callable[[], object] = lambda: None,
    ) -> None:
        self.respond = None if access_log else respond
        self.max_connections = connections_allowed() if max_connections is None else max_connections
        self.count = count
        self.waiting: dict[Connection, float] = {}
        """The connections that wait for their clients, longest first, with deadlines of the event loop's clock."""
        self._on_second = on_second
        self._has_failed = False
        self._on_shutdown = on_shutdown
        super().__init__(
            uvicorn.Config(
                app,
                # uvicorn calls it like a class.
                http=cast("type[asyncio.Protocol]", partial(Connection, served=self)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=access_log,
                # By default uvicorn trusts all programs of this machine.
                proxy_headers=bool(proxies),
                forwarded_allow_ips="*" if "*" in proxies else list(proxies),
                server_header=False,
                headers=[("x-content-type-options", "nosniff"), ("cross-origin-resource-policy", "same-origin")],
                timeout_notify=1,
                callback_notify=self.each_second,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )

    async def each_second(self) -> None:
        """Close overdue connections, and call `on_second`. Its first failure is logged; the server continues."""
        self.close_overdue(asyncio.get_running_loop().time())
        try:
            await asyncio.to_thread(self._on_second, len(self.server_state.connections))
        except Exception:  # noqa: BLE001  # of any metric; it would end the server
            if not self._has_failed:
                LOG.exception("the metrics of this process cannot be updated")
            self._has_failed = True

    def close_overdue(self, now: float) -> None:
        """Close overdue connections, each once its client has read the last response."""
        for connection in [one for one, deadline in self.waiting.items() if deadline <= now]:
            connection.transport.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `on_shutdown`, then accept no connection, close those without a request, and wait for responses."""
        self._on_shutdown()
        await super().shutdown(sockets)
