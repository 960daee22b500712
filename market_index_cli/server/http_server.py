"""uvicorn with the settings of the command. Only this module and `connection` import it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from market_index_cli.server.connection import RESERVED_DESCRIPTORS, Connection, Limits, Waiting, close_overdue

GRACE_SECONDS: Final = 10
"""How long a shutdown waits for responses in flight."""

_ACCEPTED_PER_TICK: Final = RESERVED_DESCRIPTORS // 8
"""How many connections the event loop may accept before they are counted and closed, which takes it four iterations."""

_BACKLOG: Final = 2048
"""How many connections may wait until they are accepted."""

# On every response, errors of the server included.
_NOT_SNIFFED: Final = [("x-content-type-options", "nosniff")]
_SAME_ORIGIN: Final = [("cross-origin-resource-policy", "same-origin")]


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address. It does not listen yet, so connections fail until the app is served.

    Raises:
        OSError: the address cannot be bound.
        UnicodeError: the host cannot be a host name.
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


class Server(uvicorn.Server):
    """Serves one app, and calls `on_listening` with each socket once it listens.

    Unless `any_origin` is set, browsers keep responses from pages of other origins that embed them.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access_log: bool = False,
        limits: Limits | None = None,
        any_origin: bool = False,
        on_listening: Callable[[socket.socket], object] | None = None,
    ) -> None:
        limits = limits or Limits()
        self._waiting: Waiting = {}
        super().__init__(
            uvicorn.Config(
                app,
                # uvicorn calls it as it calls a class.
                http=cast("type[asyncio.Protocol]", partial(Connection, limits=limits, waiting=self._waiting)),
                ws="none",
                lifespan="off",
                log_config=None,
                # asyncio accepts so many connections in one go; without a limit they exhaust the descriptors.
                backlog=_ACCEPTED_PER_TICK,
                access_log=access_log,
                server_header=False,
                headers=_NOT_SNIFFED if any_origin else [*_NOT_SNIFFED, *_SAME_ORIGIN],
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and report each socket."""
        await super().startup(sockets)
        for listener in sockets or ():
            # The system uses the number that was given last, the event loop the first one.
            listener.listen(_BACKLOG)
            if self._on_listening is not None:
                self._on_listening(listener)

    async def on_tick(self, counter: int) -> bool:
        """Close what is overdue; uvicorn calls this ten times a second."""
        close_overdue(self._waiting, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    def end(self) -> None:
        """Ask the server to end, also before it runs: then `should_exit` is set."""
        # uvicorn raises the signal that ended it again; by then the caller's handler has nothing left to do.
        self.should_exit = True
