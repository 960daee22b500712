"""The description of the API in OpenAPI, with the paths that an app has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from market_index_http.responses import Body
from market_index_http.routes import exact_route


def description_route(**options: Any) -> Route:
    """Return the route `/openapi.json`. It describes the app to which it is added, with the options of `description`.

    Raises:
        TypeError: `description` has no such option.
    """
    description(Starlette(), **options)

    @lru_cache(maxsize=1)
    def body(app: Starlette) -> Body:
        return Body.constant((json.dumps(description(app, **options), indent=1) + "\n").encode("ascii"))

    async def respond(request: Request) -> Response:
        return body(request.app).response(request.scope)

    return exact_route("/openapi.json", respond)


def description(
    app: Starlette,
    *,
    title: str | None = None,
    version: str | None = None,
    servers: Iterable[Mapping[str, Any]] | None = None,
    security: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the OpenAPI description of the routes of this package that an app has.

    Args:
        app: The app.
        title: The title of your API.
        version: The version of your API.
        servers: Where it is served, as Server Objects. By default, relative to the description itself.
        security: The Security Scheme Objects by name, of which each request must satisfy one, such as
            `{"key": {"type": "http", "scheme": "bearer"}}`.
    """
    whole: dict[str, Any] = json.loads((files("market_index_http.operating") / "openapi.json").read_text("ascii"))
    paths = {route.path for route in app.routes if isinstance(route, Route)}
    whole["info"] |= {name: text for name, text in (("title", title), ("version", version)) if text is not None}
    whole["paths"] = {path: item for path, item in whole["paths"].items() if path in paths}
    if servers is not None:
        whole["servers"] = [*servers]
    if security is not None:
        whole["security"] = [{name: []} for name in security]
        whole["components"]["securitySchemes"] = security
    return whole
