"""Protection against DNS rebinding: requests are rejected unless their Host field contains an allowed host.

Starlette's `TrustedHostMiddleware` is not used: its error is plain text without a way to replace it, and it accepts a
request with a second Host field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from market_index.errors import safe_repr
from market_index.wire import error_to_json
from market_index_cli.server.connection import Count

_PORT: Final = re.compile(r":[0-9]*\Z")


class AllowedHosts:
    """ASGI middleware that responds 400 unless the Host field of a request is one of the hosts, with any port.

    `count` is called with the path and the status of such a response.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], count: Count | None = None) -> None:
        self._app = app
        self._count = count
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the app, or reject it."""
        fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(fields) == 1 and _PORT.sub("", fields[0]).lower() in self._hosts:
            await self._app(scope, receive, send)
            return
        message = f"The Host field must be an allowed host, got {safe_repr(fields[0] if len(fields) == 1 else fields)}"
        response = Response(error_to_json(message), 400, media_type="application/json")
        if self._count is not None:
            self._count(scope["path"], response.status_code)
        await response(scope, receive, send)
