"""The two endpoints: `pair_list`, and `order_book` of one pair. Each is a function that returns a body."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from market_index import AssetId, Pair, PairNotFound
from market_index_http.queries import asset, parameter, require_small
from market_index_http.responses import Body, error_response
from market_index_http.snapshots import Snapshot, Snapshots


@final
class Endpoint:
    """An ASGI app that sends one response to each request, also if the request has an error.

    Args:
        snapshots: The versions of the index.
        body: Returns the body that a request asks for, or raises `HTTPException`.
    """

    def __init__(self, snapshots: Snapshots, body: Callable[[Snapshot, Scope], Body]) -> None:
        self._snapshots = snapshots
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        await self.response(scope)(scope, receive, send)

    def response(self, scope: Scope) -> Response:
        """Return the response to a request."""
        snapshot = self._snapshots.current()
        try:
            return self._body(snapshot, scope).response(scope, snapshot.fields)
        except HTTPException as error:
            return error_response(error)


def pair_list(snapshot: Snapshot, scope: Scope) -> Body:
    """`GET /trading-view/pair-list`: every tracked pair with its last known spot price.

    Unknown query parameters are ignored (decision 17).
    """
    require_small(scope)
    return snapshot.pair_list()


def order_book(snapshot: Snapshot, scope: Scope) -> Body:
    """`GET /trading-view/order-book?base=…&quote=…`: the order book of one pair, with the identifiers as asked."""
    query: bytes = scope["query_string"]
    # Parsing a query and finding its pair takes ten times as long as finding its body here.
    if (cached := snapshot.by_query.get(query)) is not None:
        return cached
    require_small(scope)
    parameters = QueryParams(query)
    base, base_asset = _asset(parameters, "base")
    quote, quote_asset = _asset(parameters, "quote")
    pair = Pair(base_asset, quote_asset)
    try:
        body = snapshot.order_book(pair)
    except PairNotFound:
        reverse = Pair(quote_asset, base_asset)
        hint = f"; its reverse is tracked: {reverse}" if reverse in snapshot.index else ""
        raise HTTPException(404, f"Pair {base}/{quote} not found{hint}") from None
    if (base, quote) != (str(base_asset), str(quote_asset)):
        return snapshot.spelled(body, pair, base, quote)
    # Only these two spellings, so that a client cannot fill the cache: it has at most two entries for each pair.
    canonical = f"base={base}&quote={quote}"
    if query in {canonical.encode("ascii"), canonical.replace(":", "%3A").encode("ascii")}:
        snapshot.by_query[query] = body
    return body


def _asset(parameters: QueryParams, name: str) -> tuple[str, AssetId]:
    """Return the text of a query parameter and the asset that it identifies (decision 16)."""
    text = parameter(parameters, name)
    if text is None:
        raise HTTPException(400, f"Query parameter '{name}' is missing")
    return text, asset(name, text)
