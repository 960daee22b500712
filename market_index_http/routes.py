"""Routes of exactly one path."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from market_index_http.bodies import JSON_FIELDS, Body, Fields, Response


class ExactRoute(Route):
    """A route for GET and HEAD of exactly one path. A `Route` also matches the path with a newline at its end.

    Args:
        path: The path.
        endpoint: A function of a request that returns an ASGI app, or an object that is one.
    """

    def __init__(
        self, path: str, endpoint: Callable[[Request], Response | Awaitable[Response]] | Callable[..., Any]
    ) -> None:
        super().__init__(path, endpoint, methods=["GET"])
        self.path_regex: re.Pattern[str] = re.compile(re.escape(path) + r"\Z")


def file_route(path: str, content: bytes, fields: Fields = JSON_FIELDS) -> ExactRoute:
    """Return a route that serves constant content, with an entity tag and gzip.

    Args:
        path: The path of the route.
        content: The body of every response.
        fields: Header fields of the content, with lower-case names. They must include the content type.
    """
    body = Body.constant(content, fields)

    async def respond(request: Request) -> Response:
        return body.response(request.scope)

    return ExactRoute(path, respond)
