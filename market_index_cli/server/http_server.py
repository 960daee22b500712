"""uvicorn with the settings of the command. Only this module and `connection` import uvicorn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from market_index_cli.descriptors import RESERVED_DESCRIPTORS
from market_index_cli.server.connection import ClientLimits, Count, LimitedConnection, Waiting

GRACE_SECONDS: Final = 10
"""How long a shutdown waits for responses in flight. Then uvicorn cancels them, and logs an error for each."""

UNREAD_SECONDS: Final = 9.0
"""How long a shutdown waits for clients that do not read."""

_ACCEPTED_PER_TICK: Final = RESERVED_DESCRIPTORS // 8
"""The most connections that the event loop accepts per iteration. It takes four iterations to count and close them."""

_TICKS_PER_SECOND: Final = 10

_BACKLOG: Final = 2048
"""The most connections that wait to be accepted."""

# In every response, including errors of the server.
_NOT_SNIFFED: Final = [("x-content-type-options", "nosniff")]
_SAME_ORIGIN: Final = [("cross-origin-resource-policy", "same-origin")]


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address but does not listen: connections fail until the app is served.

    Raises:
        OSError: the address cannot be bound.
        UnicodeError: the host is not a valid host name.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def limit_sending(listener: socket.socket, seconds: int) -> None:
    """Let the kernel close accepted connections whose client accepts no byte for so long. It does nothing but on Linux.

    The time starts when the buffers of both sides are full, or data is not acknowledged (tcp(7), TCP_USER_TIMEOUT).
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        # Accepted sockets inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, option, seconds * 1000)


class Server(uvicorn.Server):
    """Serves one app. It calls `on_listening` with each socket once it listens, and `on_shutdown` before it shuts down.

    It calls `on_second` about once per second with the number of open connections, and `count` with each response that
    the app does not send.

    Unless `any_origin` is set, pages of other origins cannot embed the responses.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access_log: bool = False,
        limits: ClientLimits | None = None,
        unread_seconds: float = UNREAD_SECONDS,
        any_origin: bool = False,
        count: Count | None = None,
        on_listening: Callable[[socket.socket], object] | None = None,
        on_second: Callable[[int], object] | None = None,
        on_shutdown: Callable[[], object] | None = None,
    ) -> None:
        limits = limits or ClientLimits()
        self._send_seconds = limits.send_seconds
        self._unread_seconds = unread_seconds
        self._waiting: Waiting = {}
        connection = partial(LimitedConnection, limits=limits, waiting=self._waiting, count=count)
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
                server_header=False,
                headers=_NOT_SNIFFED if any_origin else [*_NOT_SNIFFED, *_SAME_ORIGIN],
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._on_listening = on_listening
        self._on_second = on_second
        self._on_shutdown = on_shutdown

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
        """Close overdue connections. uvicorn calls this ten times per second."""
        now = asyncio.get_running_loop().time()
        for connection in [one for one, deadline in self._waiting.items() if deadline <= now]:
            connection.close_or_wait()
        if self._on_second is not None and counter % _TICKS_PER_SECOND == 0:
            self._on_second(len(self.server_state.connections))
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for responses in flight, but less long for clients that do not read theirs."""
        asyncio.get_running_loop().call_later(self._unread_seconds, self._disconnect_waiting)
        if self._on_shutdown is not None:
            self._on_shutdown()
        await super().shutdown(sockets)

    def _disconnect_waiting(self) -> None:
        for connection in list(self._waiting):
            connection.transport.abort()

    def end(self) -> None:
        """Request the end of the server, which may not have started yet; `should_exit` is set."""
        # uvicorn raises a signal again after its shutdown. This second call has no effect.
        self.should_exit = True
