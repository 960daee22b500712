"""Apps with the optional routes, for tests that need several of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from market_index import LiveIndex
from market_index_cli.server.counters import Counters
from market_index_cli.server.metrics import WorkerMetrics
from market_index_http import create_app
from market_index_http.operating import Health, description_route, probe_routes
from market_index_http.stream import Stream


def composed(
    live: LiveIndex,
    *,
    stream: bool | int = False,
    health: Health | None = None,
    metrics: Counters | bool = False,
    openapi: bool = False,
    others: Iterable[Any] = (),
) -> Any:
    """Return an app with these routes, as the command composes it. The server of a test calls its `end_streams`."""
    routes = [*others]
    streams = Stream(live, limit=1_000 if stream is True else stream) if stream else None
    if streams is not None:
        routes.append(streams.route())
    if health is not None:
        routes += probe_routes(live, health)
    counters = metrics if isinstance(metrics, Counters) else Counters()
    if metrics is not False:
        routes.append(WorkerMetrics(live, counters, () if streams is None else streams, health).route())
    if openapi:
        routes.append(description_route())
    app: Any = create_app(live, routes=routes, on_response=None if metrics is False else counters.count)
    if streams is not None:
        app.end_streams = streams.end
    return app
