"""The two endpoints: they read the request, find the body, and raise the errors of decisions 16 and 20."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

from market_index import AssetId, InvalidAssetId, LiveIndex, Pair, PairNotFound
from market_index.errors import safe_repr
from market_index_http.bodies import Bodies, Fields, Response
from market_index_http.counters import Counters
from market_index_http.fast_path import FastPath
from market_index_http.freshness import freshness_fields
from market_index_http.waiting import Waits


class Endpoints:
    """The two endpoints of one app. They handle every request that the fast path does not."""

    def __init__(self, live: LiveIndex, bodies: Bodies, waits: Waits) -> None:
        self.fast_path: FastPath = FastPath(live, bodies, waits)
        self.waits: Waits = waits
        self.counters: Counters = bodies.counters
        self._live = live
        self._bodies = bodies

    async def pair_list(self, request: Request) -> Response:
        """Respond with every tracked pair."""

        async def respond(fields: Fields) -> Response:
            index = self._live.current
            body = await self._bodies.pair_list_from_thread(index)
            return await body.response(request.scope, (*freshness_fields(index.freshness), *fields))

        return await self.waits.respond(request.scope, request.receive, None, respond)

    async def order_book(self, request: Request) -> Response:
        """Respond with the book of the pair that the query names."""
        base, base_asset = _asset(request, "base")
        quote, quote_asset = _asset(request, "quote")
        pair = Pair(base_asset, quote_asset)

        async def respond(fields: Fields) -> Response:
            index = self._live.current
            try:
                book = index.order_book(pair)
            except PairNotFound:
                raise HTTPException(404, f"Pair {base}/{quote} not found") from None
            fields = (*freshness_fields(index.freshness), *fields)
            body = await self._bodies.order_book_from_thread(book)
            if (base, quote) != (str(base_asset), str(quote_asset)):
                return await self._bodies.respelled(body, book.pair, base, quote).response(request.scope, fields)
            self.fast_path.remember(request.scope["query_string"], book.pair)
            return await body.response(request.scope, fields)

        return await self.waits.respond(request.scope, request.receive, pair, respond)


def _asset(request: Request, parameter: str) -> tuple[str, AssetId]:
    """Return the text of a query parameter and the asset that it identifies (decision 16)."""
    values = request.query_params.getlist(parameter)
    if not values:
        raise HTTPException(400, f"Query parameter '{parameter}' is missing")
    if len(values) > 1:
        raise HTTPException(400, f"Query parameter '{parameter}' must be given once, got {safe_repr(values)}")
    if not values[0]:
        raise HTTPException(400, f"Query parameter '{parameter}' must not be empty, got ''")
    try:
        return values[0], AssetId.parse(values[0])
    except InvalidAssetId as error:
        raise HTTPException(400, f"Query parameter '{parameter}': {error}") from None
