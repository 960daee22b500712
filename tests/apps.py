"""Apps with the optional routes, for tests that need several of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import frozen
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from market_index import LiveIndex
from market_index_cli.server.exposition import SLOT_BYTES, Exposition
from market_index_http import create_app
from market_index_http.operating import Health, description_route, probe_routes
from market_index_http.operating.counting import Responses
from market_index_http.stream import Stream


@frozen
class Composed:
    """An app with optional routes as an ASGI app, and what its server needs."""

    app: ASGIApp
    adapter: Starlette
    """The app of `create_app`."""
    responses: Responses
    end_streams: Callable[[], object]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def composed(
    live: LiveIndex,
    *,
    stream: bool | int = False,
    health: Health | None = None,
    metrics: bool = False,
    server: Mapping[str, float] | None = None,
    openapi: bool = False,
    others: Iterable[Any] = (),
) -> Composed:
    """Return an app with these routes, as the command composes it. `server` has the numbers of its server."""
    routes = [*others]
    streams = Stream(live, limit=1_000 if isinstance(stream, bool) else stream)
    if stream:
        routes.append(streams.route())
    if health is not None:
        routes += probe_routes(live, health)
    exposition = Exposition(bytearray(SLOT_BYTES), 0)
    if metrics:
        routes.append(exposition.metrics.route(exposition.text))
    if openapi:
        routes.append(description_route())
    adapter = create_app(live, routes=routes)
    watched = exposition.metrics.watch(
        adapter, live, health=health, streams=streams, server=lambda: server or {}, name="0"
    )
    return Composed(watched, adapter, watched.responses, streams.end)
