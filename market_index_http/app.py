"""The two endpoints, and the error body of everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast
from weakref import ref

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from market_index import AssetId, InvalidAssetId, LiveIndex, MarketIndex, Pair, PairNotFound, wire
from market_index.errors import safe_repr
from market_index_http.bodies import Answer, Bodies, Body, KeptBody
from market_index_http.routes import ExactRoute, JsonResponse

PAIR_LIST_PATH: Final = "/trading-view/pair-list"
ORDER_BOOK_PATH: Final = "/trading-view/order-book"

MOST_QUERIES: Final = 65_536
"""How many queries are remembered, before they are forgotten all at once."""


def create_app(live: LiveIndex, *, max_age: int | None = None) -> Starlette:
    """Return an ASGI app that serves what `live` holds: the whole app, or mounted under any path of another.

    It opens nothing and needs no lifespan: whoever owns `live` fills it, before or while the app serves. Every error
    has the error body of the contract, `{"error": <message>}`.

    An answer carries an ETag and `Cache-Control: no-cache`: a client may keep it, and asks whether it still holds.
    `max_age` lets it use the answer for so many seconds without asking, in which it may see an old price.

    >>> from market_index import LiveIndex
    >>> app = create_app(LiveIndex())
    >>> sorted(route.path for route in app.routes)
    ['/trading-view/order-book', '/trading-view/pair-list']

    Raises `ValueError` for a `max_age` that is no whole number of seconds.
    """
    return _App(_Endpoints(live, max_age))


class _App(Starlette):
    """A Starlette app whose two endpoints have a short way in, past all that Starlette does for a route.

    It is open while the app is as it was created: with middleware or with routes put before its own, every request goes
    through them, as it does in any Starlette app. What it answers fills no `route` or `endpoint` into the scope.
    """

    def __init__(self, endpoints: _Endpoints) -> None:
        self._endpoints = endpoints
        self._own_routes = [
            ExactRoute(PAIR_LIST_PATH, endpoints.pair_list),
            ExactRoute(ORDER_BOOK_PATH, endpoints.order_book),
        ]
        super().__init__(routes=self._own_routes, exception_handlers={HTTPException: _refused, Exception: _failed})
        # A redirect would name the host that the client named.
        self.router.redirect_slashes = False

    def build_middleware_stack(self) -> ASGIApp:
        """Return what answers a request; Starlette calls this once, before the first."""
        long_way = super().build_middleware_stack()
        if self.user_middleware or getattr(self, "max_body_size", None) is not None:
            return long_way
        ready_answer, own_routes, count = self._endpoints.ready_answer, self._own_routes, len(self._own_routes)

        async def short_way(scope: Scope, receive: Receive, send: Send) -> None:
            answer = ready_answer(scope) if self.router.routes[:count] == own_routes else None
            if answer is None:
                await long_way(scope, receive, send)
            else:
                start, body = answer
                await send(start)
                await send(body)

        return short_way


class _Endpoints:
    """The two endpoints, for requests of every kind and, more quickly, for the usual ones."""

    def __init__(self, live: LiveIndex, max_age: int | None) -> None:
        self._live = live
        self._bodies = Bodies(max_age)
        self._pairs: dict[bytes, Pair] = {}
        # What queries are answered with while the index is the current one; the two are swapped as one.
        self._answers: tuple[Callable[[], MarketIndex | None], dict[bytes, KeptBody]] = (lambda: None), {}

    async def pair_list(self, _: Request) -> Body:
        """Answer with every tracked pair."""
        return self._bodies.pair_list(self._live.current)

    async def order_book(self, request: Request) -> Body:
        """Answer with the book of the pair that the query names."""
        base, base_asset = _asset(request, "base")
        quote, quote_asset = _asset(request, "quote")
        try:
            book = self._live.current.order_book(Pair(base_asset, quote_asset))
        except PairNotFound:
            raise HTTPException(404, f"Pair {base}/{quote} not found") from None
        if (base, quote) != (str(base_asset), str(quote_asset)):
            return self._bodies.order_book_as_asked(book, base, quote)
        self._remember(request.scope["query_string"], book.pair)
        return self._bodies.order_book(book).body

    def ready_answer(self, scope: Scope) -> Answer | None:
        """Return the answer to a request that is as usual as can be, or None for the long way."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            return None
        try:
            path = scope["path"].removeprefix(scope.get("root_path") or "")
            if path == ORDER_BOOK_PATH:
                body = self._known_order_book(scope["query_string"])
            else:
                body = self._bodies.pair_list(self._live.current) if path == PAIR_LIST_PATH else None
            return None if body is None else body.answer(scope)
        except Exception:  # noqa: BLE001  # what fails here fails on the long way too, where it is answered and logged
            return None

    def _known_order_book(self, query: bytes) -> Body | None:
        index = self._live.current
        current, answers = self._answers
        if current() is not index:
            answers = {}
            self._answers = ref(index), answers
        kept = answers.get(query)
        if kept is None:
            pair = self._pairs.get(query)
            if pair is None:
                return None
            kept = self._bodies.order_book(index.order_book(pair))
            if len(answers) < MOST_QUERIES:
                answers[query] = kept
        return kept.body

    def _remember(self, query: bytes, pair: Pair) -> None:
        """Remember that a query asks for a pair, so that it need not be taken apart again.

        Only the plain spellings of a pair that is tracked get in: nobody can fill this with anything else.
        """
        plain = query.replace(b"%3A", b":").replace(b"%3a", b":")
        base, quote = str(pair.base).encode("ascii"), str(pair.quote).encode("ascii")
        if plain in {b"base=%b&quote=%b" % (base, quote), b"quote=%b&base=%b" % (quote, base)}:
            if len(self._pairs) >= MOST_QUERIES:
                self._pairs.clear()
            self._pairs[query] = pair


def _asset(request: Request, parameter: str) -> tuple[str, AssetId]:
    """Return the asset that a query parameter names, as it was asked and as it is (decision 16)."""
    values = request.query_params.getlist(parameter)
    if not values:
        raise HTTPException(400, f"Query parameter '{parameter}' is missing")
    if len(values) > 1:
        raise HTTPException(400, f"Query parameter '{parameter}' is given {len(values)} times: {safe_repr(values)}")
    if not values[0]:
        raise HTTPException(400, f"Query parameter '{parameter}' is empty: ''")
    try:
        return values[0], AssetId.parse(values[0])
    except InvalidAssetId as error:
        raise HTTPException(400, f"Query parameter '{parameter}': {error}") from None


def _refused(_: Request, error: Exception) -> JsonResponse:
    refusal = cast(HTTPException, error)
    return JsonResponse(wire.error_to_json(refusal.detail), refusal.status_code, refusal.headers)


def _failed(_: Request, __: Exception) -> JsonResponse:
    # No detail for the client. Starlette raises the exception again behind this answer, for the server's log.
    return JsonResponse(wire.error_to_json("Internal Server Error"), 500)
