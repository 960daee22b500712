"""Routes: what the two endpoints and the optional routes are made of."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from market_index_http.bodies import JSON_FIELDS, Body

PAIR_LIST_PATH: Final = "/trading-view/pair-list"
ORDER_BOOK_PATH: Final = "/trading-view/order-book"


class ExactRoute(Route):
    """A route that matches one path only. Starlette's own also matches the path with a newline at its end."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[ASGIApp]]) -> None:
        super().__init__(path, endpoint, methods=["GET"])
        self.path_regex: re.Pattern[str] = re.compile(re.escape(path) + r"\Z")


class JsonResponse(Response):
    """A response of JSON text. The response to HEAD has the headers of GET and no body."""

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        if scope["method"] == "HEAD":
            # Starlette leaves it to the server to drop the body.
            self.body = b""
        await super().__call__(scope, receive, send)


def file_route(path: str, content: bytes, headers: tuple[tuple[bytes, bytes], ...] = JSON_FIELDS) -> ExactRoute:
    """Return a route that answers with the same content for as long as the app exists, with an ETag of its own.

    Args:
        path: where the content is served.
        content: the body of every response.
        headers: the header fields that describe the content, with lower-case names; its type must be one of them.
    """
    body = Body(content, sha256(content).hexdigest(), b"no-cache", fields=headers)

    async def answer(_: Request) -> Body:
        return body

    return ExactRoute(path, answer)
