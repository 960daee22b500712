"""The fast path: cached responses before routing.

Theory of operation
    Starlette takes longer to route a request than uvicorn takes to send a cached body. So the most common requests are
    answered before Starlette sees them: GET or HEAD of one of the two paths, and for an order book a query that was
    answered before. A request that may wait for a change is left to its route.

    The fast path applies while the app is as `create_app` returned it: without middleware, without a limit on request
    bodies, and with its two routes first in the router. The routes are compared at each request, because they can
    change while the app serves. Starlette itself allows no middleware to be added after the first request.

    The fast path must not skip anything that a customization would do, and must not respond differently. It returns
    None for every request that it does not know, and on every exception. Then Starlette routes the request, responds
    and logs the exception. Its responses come from the same `Bodies` and the same current index as those of the routes.
    It sets no `route` or `endpoint` in the scope, and counts its responses itself.

    `make bench` measures the gain (rows "market_index_routed": the same app without the fast path).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from weakref import ref

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from market_index import LiveIndex, MarketIndex, Pair
from market_index_http.bodies import Bodies, EncodedBody, Messages, is_not_modified
from market_index_http.counters import REUSED
from market_index_http.freshness import freshness_fields
from market_index_http.paths import ORDER_BOOK_PATH, PAIR_LIST_PATH
from market_index_http.waiting import Waits, prefers_to_wait

MAX_QUERIES: Final = 65_536
"""The most queries to cache. One more clears the cache."""


class _IndexCache:
    """The cache of one index: bodies by query, and the header fields of all responses.

    It does not keep the index alive. It is replaced atomically, because several threads may serve the app.
    """

    __slots__ = ("bodies", "fields", "index")

    def __init__(self, index: MarketIndex) -> None:
        self.index = ref(index)
        self.bodies: dict[bytes, EncodedBody] = {}
        self.fields = freshness_fields(index.freshness)


class FastPath:
    """Answers common requests for the current index of `live` from `bodies`, and caches up to `max_queries` queries."""

    def __init__(self, live: LiveIndex, bodies: Bodies, waits: Waits, max_queries: int = MAX_QUERIES) -> None:
        self._live = live
        self._bodies = bodies
        self._waits = waits
        self._counters = bodies.counters
        self._book_sizes = self._counters.book_sizes
        self._list_sizes = self._counters.list_sizes
        self._max_queries = max_queries
        self._pairs: dict[bytes, Pair] = {}
        self._current = _IndexCache(MarketIndex())

    def before(self, routed: ASGIApp, applies: Callable[[], bool]) -> ASGIApp:
        """Return an app that answers common requests while `applies()` is true, and passes all others to `routed`."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            messages = self.messages(scope) if applies() else None
            if messages is None:
                await routed(scope, receive, send)
            else:
                for message in messages:
                    await send(message)

        return app

    def messages(self, scope: Scope) -> Messages | None:
        """Return the messages of the response to a common request; None for all others."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            return None
        try:
            path = scope["path"].removeprefix(scope.get("root_path") or "")
            index, current = self._live.current, self._current
            if current.index() is not index:
                current = self._current = _IndexCache(index)
            if path == ORDER_BOOK_PATH:
                body = self._order_book(index, current, scope["query_string"])
            else:
                body = self._pair_list(index) if path == PAIR_LIST_PATH else None
            messages = None if body is None else body.messages(scope, current.fields)
        except Exception:  # noqa: BLE001  # the route raises it too; Starlette responds to it and logs it
            return None
        if messages is None or (is_not_modified(messages) and self._waits.are_allowed and prefers_to_wait(scope)):
            return None
        if type(messages) is not tuple:
            return self._counted(path, messages)
        body = messages[1]["body"]
        if body:
            (self._book_sizes if path == ORDER_BOOK_PATH else self._list_sizes)[len(body)] += 1
        else:
            self._counters.count(path, messages[0]["status"])
            if path == ORDER_BOOK_PATH:
                self._counters.cells[REUSED] += 1
        return messages

    def _counted(self, path: str, messages: Messages) -> Iterator[Message]:
        """Yield the messages of a large body, and count them."""
        self._counters.count(path, 200)
        if path == ORDER_BOOK_PATH:
            self._counters.cells[REUSED] += 1
        for message in messages:
            self._counters.count_bytes(path, len(message.get("body", b"")))
            yield message

    def remember(self, query: bytes, pair: Pair) -> None:
        """Cache the pair of a query, so that the query is not parsed again.

        Only the plain spellings of a tracked pair are cached, so that a client cannot exhaust the memory.
        """
        plain = query.replace(b"%3A", b":").replace(b"%3a", b":")
        base, quote = str(pair.base).encode("ascii"), str(pair.quote).encode("ascii")
        if plain in {b"base=%b&quote=%b" % (base, quote), b"quote=%b&base=%b" % (quote, base)}:
            if len(self._pairs) >= self._max_queries:
                self._pairs.clear()
            self._pairs[query] = pair

    def _pair_list(self, index: MarketIndex) -> EncodedBody | None:
        return None if self._bodies.is_slow_list(index) else self._bodies.pair_list(index)

    def _order_book(self, index: MarketIndex, current: _IndexCache, query: bytes) -> EncodedBody | None:
        body = current.bodies.get(query)
        if body is None:
            pair = self._pairs.get(query)
            if pair is None:
                return None
            book = index.order_book(pair)
            if self._bodies.is_slow_book(book):
                return None
            body = self._bodies.order_book(book)
            if len(current.bodies) < self._max_queries:
                current.bodies[query] = body
            # `Bodies` has counted this one.
            self._counters.cells[REUSED] -= 1
        return body
