"""The paths of all routes, relative to the path of the mount, and the building blocks of routes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Scope

from market_index_http.bodies import JSON_FIELDS, Body, Fields, Response

PAIR_LIST_PATH: Final = "/trading-view/pair-list"
ORDER_BOOK_PATH: Final = "/trading-view/order-book"
STREAM_PATH: Final = "/stream"
HEALTH_PATH: Final = "/healthz"
LIVE_PATH: Final = "/livez"
READY_PATH: Final = "/readyz"
METRICS_PATH: Final = "/metrics"
OPENAPI_PATH: Final = "/openapi.json"


def path_of(scope: Scope) -> str:
    """Return the path of a request, relative to the path of the mount."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path") or "")


class ExactRoute(Route):
    """A route for GET and HEAD of exactly one path. A `Route` also matches the path with a newline at its end.

    Args:
        path: The path.
        endpoint: A function of a request that returns an ASGI app, or an object that is one.
    """

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]] | Callable[..., Any]) -> None:
        super().__init__(path, endpoint, methods=["GET"])
        self.path_regex: re.Pattern[str] = re.compile(re.escape(path) + r"\Z")


def file_route(path: str, content: bytes, fields: Fields = JSON_FIELDS) -> ExactRoute:
    """Return a route that serves constant content, with an entity tag and gzip.

    Args:
        path: The path of the route.
        content: The body of every response.
        fields: Header fields of the content, with lower-case names. They must include the content type.
    """
    body = Body(content, blake2b(content, digest_size=16).digest(), fields)

    async def respond(request: Request) -> Response:
        return body.response(request.scope)

    return ExactRoute(path, respond)
