"""The fast path: cached responses before routing.

Theory of operation
    Starlette spends more time to route a request than uvicorn to send a cached body. So requests that are as common as
    can be are answered before Starlette sees them: GET or HEAD of one of the two paths, and for an order book a query
    that was answered before.

    It applies while the app is as `create_app` returned it: no middleware, no limit on request bodies, and the two
    routes first in the router. The routes are compared with each request, since they can change while the app serves;
    Starlette itself allows no middleware to be added after the first request.

    It must never skip anything that a customization would do, nor answer differently. It returns None for every request
    that it does not know, and for every failure: then Starlette routes the request, answers it and logs what failed.
    What it answers comes from the same `Bodies` and the same current index as the answers of the routes. It sets no
    `route` or `endpoint` in the scope.

    `make bench` measures what it gains (rows "market_index_routed": the same app without it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from weakref import ref

from starlette.types import ASGIApp, Receive, Scope, Send

from market_index import LiveIndex, MarketIndex, Pair
from market_index_http.bodies import Answer, Bodies, Body
from market_index_http.freshness import freshness_fields
from market_index_http.routes import ORDER_BOOK_PATH, PAIR_LIST_PATH

MAX_QUERIES: Final = 65_536
"""How many queries are remembered before all of them are forgotten."""


class _OfIndex:
    """What is cached while an index is current: the bodies by query, and the header fields of all its answers.

    It does not keep the index alive. It is replaced as a whole, because several threads may serve the app.
    """

    __slots__ = ("bodies", "fields", "index")

    def __init__(self, index: MarketIndex) -> None:
        self.index = ref(index)
        self.bodies: dict[bytes, Body] = {}
        self.fields = freshness_fields(index.freshness)


class FastPath:
    """Answers requests for what is current from `bodies`, if they are common enough."""

    def __init__(self, live: LiveIndex, bodies: Bodies) -> None:
        self._live = live
        self._bodies = bodies
        self._pairs: dict[bytes, Pair] = {}
        self._current = _OfIndex(MarketIndex())

    def before(self, routed: ASGIApp, applies: Callable[[], bool]) -> ASGIApp:
        """Return an app that answers what it can while `applies` says so, and leaves all else to `routed`."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            answer = self.answer(scope) if applies() else None
            if answer is None:
                await routed(scope, receive, send)
            else:
                start, body = answer
                await send(start)
                await send(body)

        return app

    def answer(self, scope: Scope) -> Answer | None:
        """Return the response to a common request, None for all others."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            return None
        try:
            path = scope["path"].removeprefix(scope.get("root_path") or "")
            index, current = self._live.current, self._current
            if current.index() is not index:
                current = self._current = _OfIndex(index)
            if path == ORDER_BOOK_PATH:
                body = self._order_book(index, current, scope["query_string"])
            else:
                body = self._pair_list(index) if path == PAIR_LIST_PATH else None
            return None if body is None else body.answer(scope, current.fields)
        except Exception:  # noqa: BLE001  # what fails here fails in the route too, where it is answered and logged
            return None

    def remember(self, query: bytes, pair: Pair) -> None:
        """Remember which pair a query asks for, so that it need not be parsed again.

        Only the plain spellings of a tracked pair are remembered, so that no client can fill the memory.
        """
        plain = query.replace(b"%3A", b":").replace(b"%3a", b":")
        base, quote = str(pair.base).encode("ascii"), str(pair.quote).encode("ascii")
        if plain in {b"base=%b&quote=%b" % (base, quote), b"quote=%b&base=%b" % (quote, base)}:
            if len(self._pairs) >= MAX_QUERIES:
                self._pairs.clear()
            self._pairs[query] = pair

    def _pair_list(self, index: MarketIndex) -> Body | None:
        return None if self._bodies.is_slow_list(index) else self._bodies.pair_list(index)

    def _order_book(self, index: MarketIndex, current: _OfIndex, query: bytes) -> Body | None:
        body = current.bodies.get(query)
        if body is None:
            pair = self._pairs.get(query)
            if pair is None:
                return None
            book = index.order_book(pair)
            if self._bodies.is_slow_book(book):
                return None
            body = self._bodies.order_book(book)
            if len(current.bodies) < MAX_QUERIES:
                current.bodies[query] = body
        return body
