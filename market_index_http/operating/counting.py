"""ASGI middleware that counts the responses of an app."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

OTHER: Final = "other"
"""The label of each path that is not that of a route."""

Count: TypeAlias = Callable[[str, int], object]
"""Is called with the path of a request, and with the status of its response."""


@final
class CountResponses:
    """An app that counts its responses. A client that has received one finds it counted.

    Args:
        app: The app. The paths of its routes are read once: add routes before.
        count: Called with the path below the mount, or `OTHER` if that is not the path of a route.
    """

    def __init__(self, app: Starlette, count: Count) -> None:
        self._app = app
        self._count = count
        self._paths = frozenset(route.path for route in app.routes if isinstance(route, Route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))  # routing changes both

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(path if path in self._paths else OTHER, message["status"])
            await send(message)

        await self._app(scope, receive, send_counted)
