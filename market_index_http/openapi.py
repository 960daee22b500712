"""The contract for machines: the OpenAPI description that the server which runs by itself shows."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Final

from starlette.requests import Request

from market_index_http.app import ExactRoute
from market_index_http.bodies import Body

OPENAPI_PATH: Final = "/openapi.json"


def openapi_route() -> ExactRoute:
    """Return the route `/openapi.json`: OpenAPI 3.1, as docs/openapi.yaml says it in YAML.

    >>> openapi_route().path
    '/openapi.json'
    """
    content = files("market_index_http").joinpath("openapi.json").read_bytes()
    body = Body(content, sha256(content).hexdigest(), b"no-cache")

    async def openapi(_: Request) -> Body:
        return body

    return ExactRoute(OPENAPI_PATH, openapi)
