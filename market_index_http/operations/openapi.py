"""The route `/openapi.json`: the contract as an OpenAPI description."""

from __future__ import annotations

from importlib.resources import files

from market_index_http.paths import OPENAPI_PATH
from market_index_http.routes import ExactRoute, file_route


def openapi_route() -> ExactRoute:
    """Return the route `/openapi.json`: OpenAPI 3.1, with the content of docs/openapi.yaml.

    >>> openapi_route().path
    '/openapi.json'
    """
    return file_route(OPENAPI_PATH, files("market_index_http.operations").joinpath("openapi.json").read_bytes())
