"""The contract for machines: the OpenAPI description that the server which runs by itself shows."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from market_index_http.app import ExactRoute

OPENAPI_PATH: Final = "/openapi.json"


def openapi_route() -> ExactRoute:
    """Return the route `/openapi.json`: OpenAPI 3.1, as docs/openapi.yaml says it in YAML.

    >>> openapi_route().path
    '/openapi.json'
    """
    body = files("market_index_http").joinpath("openapi.json").read_bytes()
    headers = {"ETag": f'"{sha256(body).hexdigest()[:32]}"', "Cache-Control": "no-cache"}

    async def openapi(_: Request) -> Response:
        return Response(body, headers=headers, media_type="application/json")

    return ExactRoute(OPENAPI_PATH, openapi)
