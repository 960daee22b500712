"""The description of the API at `/openapi.json`, with the paths that the app has."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from market_index_http.responses import Body
from market_index_http.routes import exact_route


def description_route() -> Route:
    """Return the route `/openapi.json`. It describes the routes of the app to which it is added."""

    async def respond(request: Request) -> Response:
        routes: list[BaseRoute] = request.app.routes
        return _body(frozenset(route.path for route in routes if isinstance(route, Route))).response(request.scope)

    return exact_route("/openapi.json", respond)


@lru_cache
def _body(paths: frozenset[str]) -> Body:
    return Body.constant((json.dumps(description(paths), indent=1) + "\n").encode("ascii"))


def description(paths: frozenset[str]) -> dict[str, Any]:
    """Return the OpenAPI description of the paths, without paths that it does not know."""
    whole: dict[str, Any] = json.loads((files("market_index_http.operating") / "openapi.json").read_text("ascii"))
    return whole | {"paths": {path: item for path, item in whole["paths"].items() if path in paths}}
