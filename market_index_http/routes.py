"""The building blocks of all routes: exact paths, JSON responses and static files."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from market_index import LiveIndex
from market_index.errors import safe_repr
from market_index.wire import EncodedPart
from market_index_http.bodies import JSON_FIELDS, LargeBody, constant_fields


def require_live(live: LiveIndex) -> LiveIndex:
    """Return `live`. Raises `TypeError` if it is not a `LiveIndex`, such as the `MarketIndex` that it refers to."""
    if type(live) is not LiveIndex:
        raise TypeError(
            f"live must be a LiveIndex, such as LiveIndex(books), got {type(live).__name__}: {safe_repr(live)}"
        )
    return live


class ExactRoute(Route):
    """A route that matches exactly one path. Starlette's `Route` also matches the path with a newline at its end."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[ASGIApp]]) -> None:
        super().__init__(path, endpoint, methods=["GET"])
        self.path_regex: re.Pattern[str] = re.compile(re.escape(path) + r"\Z")


class TextResponse(Response):
    """A response of text in the format of `/metrics`. The response to HEAD has the headers of GET and no body."""

    media_type = "text/plain; version=0.0.4"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        if scope["method"] == "HEAD":
            # Starlette sends the body of HEAD too, and relies on the server to drop it.
            self.body = b""
        await super().__call__(scope, receive, send)


class JsonResponse(TextResponse):
    """A response of JSON text."""

    media_type = "application/json"


def file_route(path: str, content: bytes, headers: tuple[tuple[bytes, bytes], ...] = JSON_FIELDS) -> ExactRoute:
    """Return a route that serves constant content, with an ETag.

    Args:
        path: The path of the route.
        content: The body of every response.
        headers: Header fields of the content, with lower-case names. They must include the content type.
    """
    parts = (EncodedPart(content),)
    body = LargeBody(parts, sha256(content).hexdigest(), constant_fields(b"no-cache", headers))

    async def answer(_: Request) -> LargeBody:
        return body

    return ExactRoute(path, answer)
