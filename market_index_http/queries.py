"""The limits of a request target, and its query parameters (decisions 16 and 25)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.types import Scope

from market_index import AssetId, InvalidAssetId
from market_index.errors import safe_repr

MAX_TARGET_BYTES: Final = 8 * 1024
"""Decision 25."""

MAX_PARAMETERS: Final = 32
"""Decision 25."""


def require_small(scope: Scope) -> None:
    """Raise `HTTPException` if a request target is excessive; the connection is then closed (decision 25)."""
    query: bytes = scope["query_string"]
    if len(scope["path"]) + len(b"?") + len(query) > MAX_TARGET_BYTES:
        limit = f"The request target must have at most {MAX_TARGET_BYTES} bytes"
    elif query.count(b"&") >= MAX_PARAMETERS:
        limit = f"The query must have at most {MAX_PARAMETERS} parameters"
    else:
        return
    # HTTP/2 forbids the field (RFC 9113, 8.2.2).
    raise HTTPException(400, limit, {"Connection": "close"} if scope["http_version"] in {"1.0", "1.1"} else None)


def parameter(parameters: QueryParams, name: str) -> str | None:
    """Return the value of a query parameter, None if it is absent. Raises `HTTPException` if it repeats."""
    values = parameters.getlist(name)
    if len(values) > 1:
        raise HTTPException(400, f"Query parameter '{name}' must be given once, got {safe_repr(values)}")
    return values[0] if values else None


def asset(name: str, text: str) -> AssetId:
    """Return the asset that a text of a query parameter identifies.

    Raises:
        HTTPException: It is not an identifier. The message has the identifier if another spelling of one was sent.
    """
    try:
        return AssetId.parse(text)
    except InvalidAssetId as error:
        reason = str(error)
    for read in (AssetId.from_unit, AssetId.from_dotted):
        with suppress(InvalidAssetId):
            reason = f"the identifier of this asset is {read(text)}, got {safe_repr(text)}"
    raise HTTPException(400, f"Query parameter '{name}': {reason}")
