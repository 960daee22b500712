"""Routes of exactly one path."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from starlette.routing import Route


def exact_route(path: str, endpoint: Callable[..., Any]) -> Route:
    """Return a route for GET and HEAD. A plain `Route` also matches the path with a newline at its end (decision 18).

    Args:
        path: The path.
        endpoint: As that of `Route`: a function of a request that returns a response, or an ASGI app.
    """
    route = Route(path, endpoint, methods=["GET"])
    route.path_regex = re.compile(re.escape(path) + r"\Z")
    return route
