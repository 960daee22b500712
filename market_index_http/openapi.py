"""The contract for machines: the OpenAPI description that the server which runs by itself shows."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from market_index_http.app import ExactRoute, file_route

OPENAPI_PATH: Final = "/openapi.json"


def openapi_route() -> ExactRoute:
    """Return the route `/openapi.json`: OpenAPI 3.1, as docs/openapi.yaml says it in YAML.

    >>> openapi_route().path
    '/openapi.json'
    """
    return file_route(OPENAPI_PATH, files("market_index_http").joinpath("openapi.json").read_bytes())
