"""The hosts that requests may name, against DNS rebinding: a web page cannot reach the service under its own name."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from market_index import wire
from market_index.errors import safe_repr
from market_index_cli.server.hosts import host_of, read_host


class AllowedHosts:
    """An ASGI app that answers 400 unless the Host field of a request names one of the hosts, with any port."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(map(read_host, hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(named) == 1 and host_of(named[0]) in self._hosts:
            await self._app(scope, receive, send)
            return
        message = f"The Host field must name an allowed host, got {safe_repr(named[0] if len(named) == 1 else named)}"
        response = Response(wire.error_to_json(message), 400, media_type="application/json")
        await response(scope, receive, send)
