"""Protection against DNS rebinding: requests are rejected unless their Host field contains an allowed host."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from market_index import wire
from market_index.errors import safe_repr
from market_index_cli.server.hosts import host_of, read_host


class AllowedHosts:
    """ASGI middleware that responds 400 unless the Host field of a request is one of the hosts, with any port."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(map(read_host, hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the app, or reject it."""
        fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(fields) == 1 and host_of(fields[0]) in self._hosts:
            await self._app(scope, receive, send)
            return
        message = f"The Host field must be an allowed host, got {safe_repr(fields[0] if len(fields) == 1 else fields)}"
        response = Response(wire.error_to_json(message), 400, media_type="application/json")
        await response(scope, receive, send)
