"""uvicorn, set up to serve the app by itself: the one module that knows it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from market_index import wire

GRACE_SECONDS: Final = 10
"""How long answers that are in flight are waited for at the end."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that holds the address but does not listen yet: a client is refused until the app is served.

    Raises `OSError` (or `UnicodeError`, for what cannot be a host name) when the address cannot be had.
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
    """Serves one app, and calls `on_listening` with each socket once it listens."""

    def __init__(
        self, app: ASGIApp, *, access_log: bool = False, on_listening: Callable[[socket.socket], object] = id
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_ErrorBodyProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=access_log,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        for listener in sockets or ():
            self._on_listening(listener)

    def end(self) -> None:
        """Ask the server to end, also before it runs: then `should_exit` tells."""
        # uvicorn raises the signal that ended it once more; whoever handles it then finds the work done.
        self.should_exit = True


class _ErrorBodyProtocol(HttpToolsProtocol):
    """Gives the error body to what the parser refuses before an app sees it, such as a target above 64 KiB."""

    def send_400_response(self, msg: str) -> None:
        body = wire.error_to_json(msg)
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = [b"HTTP/1.1 400 Bad Request", *(b"%s: %s" % field for field in fields), b"", body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()
