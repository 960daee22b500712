"""uvicorn, set up to serve the app by itself: the one module that knows it."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

GRACE_SECONDS: Final = 10
"""How long answers that are in flight are waited for at the end."""


ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


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
    """Serves one app on one socket, and calls `on_listening` once it does."""

    def __init__(
        self, app: ASGIApp, *, access_log: bool = False, on_listening: Callable[[], object] = lambda: None
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
        self._on_listening()

    def run_until_signalled(self, listener: socket.socket) -> None:
        """Serve until SIGINT or SIGTERM, answer what is in flight, and return."""

        def stop(*_: Any) -> None:
            self.should_exit = True

        # uvicorn raises the signal that ended it once more; then this finds the work done, and the end is clean.
        before = {number: signal.signal(number, stop) for number in ENDING_SIGNALS}
        try:
            self.run([listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _ErrorBodyProtocol(HttpToolsProtocol):
    """Gives the error body to what the parser refuses before an app sees it, such as a target above 64 KiB."""

    def send_400_response(self, msg: str) -> None:
        body = json.dumps({"error": msg}).encode()
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = [b"HTTP/1.1 400 Bad Request", *(b"%s: %s" % field for field in fields), b"", body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()
