"""The two endpoints: they read the request, find the body, and raise the errors of decisions 16, 20 and 25."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, final

from attrs import frozen
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from market_index import AssetId, Freshness, InvalidAssetId, LiveIndex, MarketIndex, Pair, PairNotFound
from market_index.errors import safe_repr
from market_index.wire import AS_OF, PUBLISHED_AT, format_time
from market_index_http.bodies import Bodies, Body, Fields, Response
from market_index_http.routes import ORDER_BOOK_PATH, path_of

MAX_TARGET_BYTES: Final = 8 * 1024
"""Decision 25."""

MAX_PARAMETERS: Final = 32
"""Decision 25."""

MAX_CACHED_QUERIES: Final = 8192
"""How many queries are cached, with their pairs and with their bodies: at worst, twice 64 MB of long queries."""


@frozen
class _Query:
    """The pair that a query names, and its identifiers as the client spelled them."""

    pair: Pair | None = None
    """None: the pair list."""
    base: str = ""
    quote: str = ""
    is_canonical: bool = True


_PAIR_LIST: Final = _Query()
_CLOSE: Final = {"Connection": "close"}


@final
class _Version:
    """What the responses for one version of the index share: header fields, and the bodies by path and query.

    Finding a body by its query takes less than half of the time of finding it by its pair.
    """

    __slots__ = ("bodies", "fields", "index")

    def __init__(self, index: MarketIndex) -> None:
        self.index = index
        self.fields = freshness_fields(index.freshness)
        self.bodies: dict[tuple[str, bytes], Body] = {}


@final
class Endpoints:
    """Both endpoints, as one ASGI app for their two routes."""

    def __init__(self, live: LiveIndex, bodies: Bodies) -> None:
        self._live = live
        self._bodies = bodies
        # Replaced as a whole, because several threads may serve the app.
        self._version = _Version(MarketIndex())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        await self.response(scope, path_of(scope))(scope, receive, send)

    def response(self, scope: Scope, path: str) -> Response:
        """Return the response to a request.

        Args:
            scope: The scope of the request.
            path: The path of one of the endpoints.

        Raises:
            HTTPException: the response is an error.
        """
        version = self._current()
        key = path, scope["query_string"]
        body = version.bodies.get(key)
        if body is None:
            body, is_canonical = self._body(version.index, scope, path)
            if is_canonical and len(version.bodies) < MAX_CACHED_QUERIES:
                version.bodies[key] = body
        return body.response(scope, version.fields)

    def _current(self) -> _Version:
        """Return the version of the current index, and forget what it has replaced."""
        index, version = self._live.current, self._version
        if version.index is not index:
            self._bodies.forget(version.index, index)
            version = self._version = _Version(index)
        return version

    def _body(self, index: MarketIndex, scope: Scope, path: str) -> tuple[Body, bool]:
        """Return the body that a request asks for, and whether it may be cached by its query."""
        require_small(scope)
        query = _book_query(scope["query_string"]) if path == ORDER_BOOK_PATH else _PAIR_LIST
        try:
            body = self._bodies.body(index, query.pair)
        except PairNotFound:
            raise HTTPException(404, f"Pair {query.base}/{query.quote} not found") from None
        if query.pair is None or query.is_canonical:
            return body, True
        return self._bodies.spelled(body, query.pair, query.base, query.quote), False


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


def require_small(scope: Scope) -> None:
    """Raise `HTTPException` if a request target is excessive; the connection is then closed (decision 25)."""
    query: bytes = scope["query_string"]
    if len(scope["path"]) + len(b"?") + len(query) > MAX_TARGET_BYTES:
        raise HTTPException(400, f"The request target must have at most {MAX_TARGET_BYTES} bytes", _CLOSE)
    if query.count(b"&") >= MAX_PARAMETERS:
        raise HTTPException(400, f"The query must have at most {MAX_PARAMETERS} parameters", _CLOSE)


@lru_cache(maxsize=MAX_CACHED_QUERIES)
def _book_query(query: bytes) -> _Query:
    parameters = QueryParams(query)
    base, base_asset = _asset(parameters, "base")
    quote, quote_asset = _asset(parameters, "quote")
    is_canonical = (base, quote) == (str(base_asset), str(quote_asset))
    return _Query(Pair(base_asset, quote_asset), base, quote, is_canonical)


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


def parameter(parameters: QueryParams, name: str) -> str | None:
    """Return the value of a query parameter, None if it is absent. Raises `HTTPException` if it repeats."""
    values = parameters.getlist(name)
    if len(values) > 1:
        raise HTTPException(400, f"Query parameter '{name}' must be given once, got {safe_repr(values)}")
    return values[0] if values else None
