"""uvicorn with the settings of the command. Only this module and `connection` import uvicorn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp, Message, Scope

from market_index_cli.descriptors import RESERVED_DESCRIPTORS
from market_index_cli.logs import LOG
from market_index_cli.server.connection import CachedResponse, ClientLimits, Count, LimitedConnection, Waiting

GRACE_SECONDS: Final = 10
"""How long a shutdown waits for responses in flight. Then uvicorn cancels them, and logs an error for each."""

UNREAD_SECONDS: Final = 9.0
"""How long a shutdown waits for clients that do not read."""

DRAIN_SECONDS: Final = 0.5
"""How long a shutdown waits for the next request of each open connection. Its response closes the connection.

Without this time, the request of a client would fail if its connection is closed while the request is on its way.
"""

_DRAIN_POLL_SECONDS: Final = 0.02

_ACCEPTED_PER_TICK: Final = RESERVED_DESCRIPTORS // 8
"""The most connections that the event loop accepts per iteration. It takes four iterations to count and close them."""

_TICKS_PER_SECOND: Final = 10

_BACKLOG: Final = 2048
"""The most connections that wait to be accepted."""

# In every response, including errors of the server.
_NOT_SNIFFED: Final = [("x-content-type-options", "nosniff")]
_SAME_ORIGIN: Final = [("cross-origin-resource-policy", "same-origin")]


def limit_sending(listener: socket.socket, seconds: int) -> None:
    """Let the kernel close accepted connections whose client accepts no byte for so long: TCP on Linux only.

    The time starts when the buffers of both sides are full, or data is not acknowledged (tcp(7), TCP_USER_TIMEOUT).
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None and listener.family != socket.AF_UNIX:
        # Accepted sockets inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, option, seconds * 1000)


class Server(uvicorn.Server):
    """Serves one app. It calls `on_listening` with each socket once it listens, and `on_shutdown` before it shuts down.

    It calls `on_second` about once per second, in a thread, with the number of open connections, and `count` with each
    response that the app does not send.

    If the app has a method `cached_response`, as that of `create_app` has, the server asks it first. With `access_log`
    it calls the app for each request.

    Unless `any_origin` is set, pages of other origins cannot embed the responses. The header fields `X-Forwarded-For`
    and `X-Forwarded-Proto` are ignored, unless the address of the client is one of `proxies`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access_log: bool = False,
        limits: ClientLimits | None = None,
        unread_seconds: float = UNREAD_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        proxies: Sequence[str] = (),
        any_origin: bool = False,
        count: Count | None = None,
        on_listening: Callable[[socket.socket], object] | None = None,
        on_second: Callable[[int], object] | None = None,
        on_shutdown: Callable[[], object] | None = None,
    ) -> None:
        limits = limits or ClientLimits()
        self._send_seconds = limits.send_seconds
        self._unread_seconds = unread_seconds
        self._drain_seconds = drain_seconds
        self._is_hung_up = False
        self._waiting: Waiting = {}
        self._cached_response: CachedResponse | None = None if access_log else getattr(app, "cached_response", None)
        connection = partial(
            LimitedConnection,
            limits=limits,
            waiting=self._waiting,
            count=count,
            cached_response=None if self._cached_response is None else self._response,
        )
        super().__init__(
            uvicorn.Config(
                app,
                # uvicorn calls it like a class.
                http=cast("type[asyncio.Protocol]", connection),
                ws="none",
                lifespan="off",
                log_config=None,
                # asyncio accepts this many connections per iteration. More would exhaust the file descriptors.
                backlog=_ACCEPTED_PER_TICK,
                access_log=access_log,
                # By default uvicorn trusts all programs of this machine.
                proxy_headers=bool(proxies),
                forwarded_allow_ips="*" if "*" in proxies else list(proxies),
                server_header=False,
                headers=_NOT_SNIFFED if any_origin else [*_NOT_SNIFFED, *_SAME_ORIGIN],
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._on_listening = on_listening
        self._on_second = on_second
        self._on_shutdown = on_shutdown

    def _response(self, scope: Scope) -> tuple[Message, Message] | None:
        # At the shutdown the response must close its connection.
        return None if self.should_exit or self._cached_response is None else self._cached_response(scope)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and call `on_listening` with each socket."""
        await super().startup(sockets)
        for listener in sockets or ():
            # The kernel uses the last backlog that was set, the event loop the first one.
            listener.listen(_BACKLOG)
            limit_sending(listener, self._send_seconds)
            if self._on_listening is not None:
                self._on_listening(listener)

    async def on_tick(self, counter: int) -> bool:
        """Close overdue connections, and log a hangup. uvicorn calls this ten times per second."""
        if self._is_hung_up:
            self._is_hung_up = False
            LOG.warning("SIGHUP ignored: a server of one process is not restarted (--workers 2 can be)")
        now = asyncio.get_running_loop().time()
        for connection in [one for one, deadline in self._waiting.items() if deadline <= now]:
            connection.close_or_wait()
        # First, because it sets the header fields of every response.
        is_ending = await super().on_tick(counter)
        if self._on_second is not None and counter % _TICKS_PER_SECOND == 0:
            await asyncio.to_thread(self._on_second, len(self.server_state.connections))
        return is_ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no connection, answer the requests that are on their way, and wait for responses in flight.

        It waits less long for clients that do not read theirs.
        """
        asyncio.get_running_loop().call_later(self._unread_seconds, self._disconnect_waiting)
        if self._on_shutdown is not None:
            self._on_shutdown()
        for server in self.servers:
            server.close()
        # Otherwise connections would wait for a process that accepts none, and be reset.
        for listener in sockets or ():
            listener.close()
        await self._drain()
        await super().shutdown(sockets)

    async def _drain(self) -> None:
        """Close each connection after its next response, and wait until all are closed, or the time is over."""
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_seconds
        # Connections that were accepted but not counted yet are counted during the first sleep.
        while loop.time() < deadline:
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
            if not self.server_state.connections:
                break

    def _disconnect_waiting(self) -> None:
        for connection in list(self._waiting):
            connection.transport.abort()

    def end(self) -> None:
        """Request the end of the server, which may not have started yet; `should_exit` is set."""
        # uvicorn raises a signal again after its shutdown. This second call has no effect.
        self.should_exit = True

    def hang_up(self) -> None:
        """Log soon that a hangup is ignored. A signal handler may call this."""
        self._is_hung_up = True
