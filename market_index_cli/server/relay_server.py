"""The probes and metrics of a relay, which a thread of its process serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time

from starlette.applications import Starlette

from market_index import LiveIndex
from market_index_cli.errors import listen_errors
from market_index_cli.logs import LOG
from market_index_cli.server.http_server import Server, running
from market_index_cli.server.listeners import bind, url_of
from market_index_feeds import Feed
from market_index_http.operating import Health, Metrics, probe_routes


@contextmanager
def serve_status(
    feed: Feed, is_keeping: Callable[[], bool], limits: tuple[float | None, float | None], host: str, port: int
) -> Iterator[tuple[Callable[[], bool], Callable[[], None]]]:
    """Serve `/livez`, `/readyz`, `/healthz` and `/metrics` within the context.

    Yield what the relay calls for each version of the feed, which returns `is_keeping()`, and after each write.

    Args:
        feed: The feed of the relay.
        is_keeping: Whether this relay keeps the store.
        limits: Those of `Health`.
        host: The address.
        port: The port.
    """
    live, health, metrics = LiveIndex(), Health(feed.health, *limits), Metrics(label="worker")
    numbers = dict[str, float]()

    def on_version() -> bool:
        if feed.version is not None:
            live.show(feed.version.index)
        numbers["relay_keeping"] = found = is_keeping()
        return found

    def on_written() -> None:
        numbers["relay_written_timestamp_seconds"] = time()

    app = Starlette(routes=[*probe_routes(live, health), metrics.route()])
    app.router.redirect_slashes = False
    watched = metrics.watch(app, live, health=health, server=numbers.copy, name="0")
    with listen_errors(f"{host} port {port}"):
        listener = bind(host, port)
        listener.listen()
    with listener, running(Server(app, responses=watched.responses), listener):
        LOG.info("listening on %s", url_of(listener))
        yield on_version, on_written
