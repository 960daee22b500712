"""`GET /trading-view/order-book?base=…&quote=…`: the order book of one pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.types import Scope

from market_index import AssetId, InvalidAssetId, Pair, PairNotFound
from market_index_http.bodies import Body, Response
from market_index_http.queries import parameter, require_small
from market_index_http.snapshots import Snapshot

MAX_CACHED_QUERIES: Final = 8192
"""How many queries of a version are cached with their bodies: at worst 64 MB of long queries."""


@final
class OrderBookEndpoint:
    """The endpoint of the order books."""

    path: Final = "/trading-view/order-book"

    def __init__(self, current: Callable[[], Snapshot]) -> None:
        self._current = current

    def __call__(self, scope: Scope) -> Response:
        """Return the response to a request.

        Raises:
            HTTPException: 400 if the query is excessive or names no pair, 404 if the pair is not tracked.
        """
        snapshot, query = self._current(), scope["query_string"]
        body = snapshot.by_query.get(query)
        if body is None:
            require_small(scope)
            body = _body(snapshot, query)
        return body.response(scope, snapshot.fields)


def _body(snapshot: Snapshot, query: bytes) -> Body:
    """Return the body that a query asks for."""
    parameters = QueryParams(query)
    base, base_asset = _asset(parameters, "base")
    quote, quote_asset = _asset(parameters, "quote")
    pair = Pair(base_asset, quote_asset)
    try:
        body = snapshot.order_book(pair)
    except PairNotFound:
        raise HTTPException(404, f"Pair {base}/{quote} not found") from None
    if (base, quote) != (str(base_asset), str(quote_asset)):
        return snapshot.spelled(body, pair, base, quote)
    # Parsing a query and finding its pair takes ten times as long as finding its body here.
    if len(snapshot.by_query) < MAX_CACHED_QUERIES:
        snapshot.by_query[query] = body
    return body


def _asset(parameters: QueryParams, name: str) -> tuple[str, AssetId]:
    """Return the text of a query parameter and the asset that it identifies (decision 16)."""
    text = parameter(parameters, name)
    if not text:
        fault = "is missing" if text is None else "must not be empty, got ''"
        raise HTTPException(400, f"Query parameter '{name}' {fault}")
    try:
        return text, AssetId.parse(text)
    except InvalidAssetId as error:
        raise HTTPException(400, f"Query parameter '{name}': {error}") from None
