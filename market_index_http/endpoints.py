"""The two endpoints: they read the request, find the body, and raise the errors of decisions 16, 20 and 25."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final, final

from anyio import to_thread
from attrs import frozen
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from market_index import AssetId, Freshness, InvalidAssetId, LiveIndex, MarketIndex, Pair, PairNotFound
from market_index.errors import safe_repr
from market_index.freshness import format_time
from market_index.wire.internal import AS_OF, PUBLISHED_AT
from market_index_http.bodies import Bodies, Body, Fields, Response
from market_index_http.routes import ORDER_BOOK_PATH, path_of
from market_index_http.waiting import Waits, prefers_to_wait

MAX_TARGET_BYTES: Final = 8 * 1024
"""Decision 25."""

MAX_PARAMETERS: Final = 32
"""Decision 25."""


@frozen
class _Query:
    """The pair that a query names, and its identifiers as the client spelled them."""

    pair: Pair | None = None
    """None: the pair list."""
    base: str = ""
    quote: str = ""
    is_canonical: bool = True


_PAIR_LIST: Final = _Query()


@final
class Endpoints:
    """Both endpoints, as one ASGI app for their two routes.

    Most responses are cached, so `response` makes them without waiting. It is the first step of each request.
    """

    def __init__(self, live: LiveIndex, bodies: Bodies, waits: Waits) -> None:
        self._live = live
        self._bodies = bodies
        self._waits = waits
        self._freshness: tuple[Freshness, Fields] = Freshness(), ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request. If it prefers to wait for a change, wait."""
        response = self.response(scope)
        if response is None:
            query = _query_of(scope)
            respond = partial(self._respond, scope, query)
            response = await self._waits.respond(scope, receive, query.pair, respond)
        await response(scope, receive, send)

    def response(self, scope: Scope) -> Response | None:
        """Return the response to a request; None if a thread must make it, or the request prefers to wait.

        Raises:
            HTTPException: the response is an error.
        """
        query, index = _query_of(scope), self._live.current
        body = self._body(index, query)
        response = None if body is None else self._spelled(body, query).response(scope, self._fields(index.freshness))
        if response is not None and response.is_not_modified and self._waits.are_allowed and prefers_to_wait(scope):
            return None
        return response

    async def _respond(self, scope: Scope, query: _Query, fields: Fields) -> Response:
        """Return the response to a request, with additional header fields. Threads do what takes long."""
        index = self._live.current
        body = self._body(index, query)
        if body is None:
            body = await to_thread.run_sync(self._bodies.encode, index, query.pair)
        return await self._spelled(body, query).respond(scope, (*self._fields(index.freshness), *fields))

    def _body(self, index: MarketIndex, query: _Query) -> Body | None:
        try:
            return self._bodies.body(index, query.pair)
        except PairNotFound:
            raise HTTPException(404, f"Pair {query.base}/{query.quote} not found") from None

    def _spelled(self, body: Body, query: _Query) -> Body:
        if query.pair is None or query.is_canonical:
            return body
        return self._bodies.spelled(body, query.pair, query.base, query.quote)

    def _fields(self, freshness: Freshness) -> Fields:
        """Return the header fields of a freshness, which most requests share."""
        known, fields = self._freshness
        if known is not freshness:
            fields = freshness_fields(freshness)
            self._freshness = freshness, fields
        return fields


def freshness_fields(freshness: Freshness) -> Fields:
    """Return the header fields of a freshness (decision 23); an unknown value has no field.

    >>> freshness_fields(Freshness("slot 145000000"))
    ((b'market-index-as-of', b'slot 145000000'),)
    """
    fields = []
    if freshness.as_of is not None:
        fields.append((AS_OF.lower().encode("ascii"), freshness.as_of.encode("ascii")))
    if freshness.published_at is not None:
        fields.append((PUBLISHED_AT.lower().encode("ascii"), format_time(freshness.published_at).encode("ascii")))
    return tuple(fields)


def _query_of(scope: Scope) -> _Query:
    """Return what a request asks for. Raises `HTTPException` if it is excessive, or names no pair."""
    query: bytes = scope["query_string"]
    if len(scope.get("raw_path") or scope["path"]) + len(b"?") + len(query) > MAX_TARGET_BYTES:
        raise HTTPException(400, f"The request target must have at most {MAX_TARGET_BYTES} bytes")
    if query.count(b"&") >= MAX_PARAMETERS:
        raise HTTPException(400, f"The query must have at most {MAX_PARAMETERS} parameters")
    return _book_query(query) if path_of(scope) == ORDER_BOOK_PATH else _PAIR_LIST


# Parsing takes longer than all the rest. At worst, 64 MB of long queries are cached.
@lru_cache(maxsize=8192)
def _book_query(query: bytes) -> _Query:
    parameters = QueryParams(query)
    base, base_asset = _asset(parameters, "base")
    quote, quote_asset = _asset(parameters, "quote")
    is_canonical = (base, quote) == (str(base_asset), str(quote_asset))
    return _Query(Pair(base_asset, quote_asset), base, quote, is_canonical)


def _asset(parameters: QueryParams, name: str) -> tuple[str, AssetId]:
    """Return the text of a query parameter and the asset that it identifies (decision 16)."""
    values = parameters.getlist(name)
    if not values:
        raise HTTPException(400, f"Query parameter '{name}' is missing")
    if len(values) > 1:
        raise HTTPException(400, f"Query parameter '{name}' must be given once, got {safe_repr(values)}")
    if not values[0]:
        raise HTTPException(400, f"Query parameter '{name}' must not be empty, got ''")
    try:
        return values[0], AssetId.parse(values[0])
    except InvalidAssetId as error:
        raise HTTPException(400, f"Query parameter '{name}': {error}") from None
