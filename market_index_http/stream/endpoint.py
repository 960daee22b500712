"""`GET /stream?pairs=BASE/QUOTE,…&levels=changed`: the request, and its response until the client or server ends."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from contextlib import suppress
from typing import final

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from market_index import LiveIndex, Pair
from market_index.errors import safe_repr
from market_index_http.queries import asset, parameter, require_small
from market_index_http.responses import error_response
from market_index_http.routes import exact_route
from market_index_http.stream.audience import Audience, Client
from market_index_http.stream.steps import Asked


@final
class Stream:
    """The endpoint of streams, as an ASGI app.

    When uvicorn shuts down, the streams end about half a second later. A program that calls `end` saves this time.

    Args:
        live: The live index.
        limit: How many streams may be open; any further one gets 503.
    """

    def __init__(self, live: LiveIndex, *, limit: int = 1_000) -> None:
        self._live = live
        self._limit = limit
        self._audiences: dict[AbstractEventLoop, Audience] = {}
        self.failures: int = 0
        """How often an unexpected error has ended all streams. It is logged."""

    def route(self) -> Route:
        """Return the route for an app."""
        return exact_route("/stream", self)

    def __len__(self) -> int:
        return sum(len(audience.clients) for audience in list(self._audiences.values()))

    def end(self) -> None:
        """End all streams of all event loops. Any thread may call it."""
        for loop, audience in list(self._audiences.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(audience.end)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request with the stream that it asks for.

        An error is 400 if a parameter is malformed, 426 if the response could not be delimited, 503 if there are too
        many streams.
        """
        try:
            client = Client(send, self._asked(scope))
        except HTTPException as error:
            await error_response(error)(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            await client.start()
            await client.finish()
            return
        # The timeout means that the client has accepted nothing for too long: its response is cut, without an end.
        with suppress(TimeoutError):
            async with client.timeout:
                await self._serve(client, receive)

    async def _serve(self, client: Client, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        audience = self._audiences.get(loop)
        if audience is None:
            audience = self._audiences[loop] = Audience(self._live, self._count_failure)
        listening = loop.create_task(client.listen(receive))
        try:
            await audience.serve(client)
        finally:
            listening.cancel()
            if not audience.clients:
                del self._audiences[loop]
                audience.close()

    def _asked(self, scope: Scope) -> Asked:
        """Return what a request asks for. Raises `HTTPException`."""
        require_small(scope)
        if scope["http_version"] == "1.0":
            # A server sends a response without a length in chunks, which this client does not know.
            fields = {"Upgrade": "HTTP/1.1", "Connection": "upgrade, close"}
            raise HTTPException(426, "A stream requires HTTP/1.1", fields)
        parameters = QueryParams(scope["query_string"])
        levels = parameter(parameters, "levels")
        if levels not in {None, "changed"}:
            raise HTTPException(400, f"Query parameter 'levels' must be 'changed', got {safe_repr(levels)}")
        texts = parameter(parameters, "pairs")
        pairs = None if texts is None else frozenset(map(_pair_of, texts.split(",")))
        if len(self) >= self._limit:
            raise HTTPException(503, f"Too many streams: the limit is {self._limit:,}", {"Retry-After": "5"})
        return Asked(pairs, as_changes=levels == "changed")

    def _count_failure(self) -> None:
        self.failures += 1


def _pair_of(text: str) -> Pair:
    base, slash, quote = text.partition("/")
    if not slash:
        raise HTTPException(400, f"Query parameter 'pairs': a pair must be BASE/QUOTE, got {safe_repr(text)}")
    return Pair(asset("pairs", base), asset("pairs", quote))
