"""The probes and metrics of a relay, which a thread of its process serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time
from typing import final

from starlette.applications import Starlette

from market_index import LiveIndex
from market_index_cli.errors import listen_errors
from market_index_cli.logs import LOG
from market_index_cli.server.http_server import Server, running
from market_index_cli.server.listeners import bind, url_of
from market_index_feeds import Feed
from market_index_http.operating import Health, Metrics, probe_routes


@final
class RelayStatus:
    """What a relay reports about itself. It calls `on_version` and `on_written`."""

    def __init__(self, feed: Feed, live: LiveIndex) -> None:
        self._feed, self._live = feed, live
        self._numbers = dict[str, float]()

    def numbers(self) -> dict[str, float]:
        """Return the numbers for `Metrics.watch`."""
        return self._numbers.copy()

    def on_version(self, is_keeping: Callable[[], bool]) -> bool:
        """Report a version of the feed, and whether this relay keeps the store. Return that."""
        if self._feed.version is not None:
            self._live.show(self._feed.version.index)
        found = is_keeping()
        self._numbers["relay_keeping"] = found
        return found

    def on_written(self) -> None:
        """Report that a change was written into the store."""
        self._numbers["relay_written_timestamp_seconds"] = time()


@contextmanager
def serve_status(feed: Feed, limits: tuple[float | None, float | None], host: str, port: int) -> Iterator[RelayStatus]:
    """Serve `/livez`, `/readyz`, `/healthz` and `/metrics` within the context. `limits` are those of `Health`."""
    live, health, metrics = LiveIndex(), Health(feed.health, *limits), Metrics(label="worker")
    status = RelayStatus(feed, live)
    app = Starlette(routes=[*probe_routes(live, health), metrics.route()])
    app.router.redirect_slashes = False
    watched = metrics.watch(app, live, health=health, server=status.numbers, name="0")
    with listen_errors(f"{host} port {port}"):
        listener = bind(host, port)
        listener.listen()
    with listener, running(Server(app, responses=watched.responses), listener):
        LOG.info("listening on %s", url_of(listener))
        yield status
