"""The contract as an OpenAPI description: the route `/openapi.json`, and a document for the host of a mounted app."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any, Final

from market_index.errors import safe_repr
from market_index_http.paths import OPENAPI_PATH, ORDER_BOOK_PATH, PAIR_LIST_PATH
from market_index_http.routes import ExactRoute, file_route

_IS_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*", re.ASCII).fullmatch


def openapi_route() -> ExactRoute:
    """Return the route `/openapi.json`: OpenAPI 3.1, with the content of docs/openapi.yaml.

    >>> openapi_route().path
    '/openapi.json'
    """
    return file_route(OPENAPI_PATH, _description())


def openapi_document(prefix: str = "") -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of the two endpoints below a path, to merge it into that of a host.

    Each call returns a new document, which the caller may change. It names no server and no security.

    >>> sorted(openapi_document("/api")["paths"])
    ['/api/trading-view/order-book', '/api/trading-view/pair-list']

    Args:
        prefix: The path where the app is mounted, such as `/api`; empty for the root.

    Raises:
        ValueError: the prefix is neither empty nor segments of unreserved characters (RFC 3986), each after a slash.
    """
    if not _IS_PREFIX(prefix):
        raise ValueError(f"prefix must be empty or a path such as '/api', got {safe_repr(prefix)}")

    def renamed(part: dict[str, Any]) -> dict[str, Any]:
        # An operation id is unique in a document, which may describe several mounts.
        return part | {"operationId": part["operationId"] + prefix.replace("/", "_")} if "operationId" in part else part

    document: dict[str, Any] = json.loads(_description(), object_hook=renamed)
    paths = document["paths"]
    document["paths"] = {prefix + path: paths[path] for path in (PAIR_LIST_PATH, ORDER_BOOK_PATH)}
    for part in ("servers", "security", "tags"):
        del document[part]
    return document


def _description() -> bytes:
    return files("market_index_http.operations").joinpath("openapi.json").read_bytes()
