"""Serving one feed on one address, by this process or by several workers."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from attrs import frozen
from starlette.types import ASGIApp

from market_index import LiveIndex
from market_index_cli.descriptors import require_open_files
from market_index_cli.errors import feed_errors, listen_errors
from market_index_cli.loading import loading
from market_index_cli.logs import LOG, errors_logged, log_with_times
from market_index_cli.page.routes import page_routes
from market_index_cli.server.allowed_hosts import AllowedHosts
from market_index_cli.server.connection import ClientLimits
from market_index_cli.server.cross_origin import CrossOrigin
from market_index_cli.server.http_server import GRACE_SECONDS, Server
from market_index_cli.server.listeners import address_of, opened, passed_socket, url_of
from market_index_cli.server.pauses import short_pauses
from market_index_cli.server.workers import supervise
from market_index_cli.signals import ended_by_signals
from market_index_feeds import Feed, open_feed
from market_index_http import Counters, Health, create_app


@frozen
class Settings:
    """The options of `serve` that every worker needs; picklable."""

    source: str
    log_format: str
    log_level: str
    access_log: bool
    max_age: int | None
    max_wait: int
    max_stale: float | None
    max_quiet: float | None
    cors_origins: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    proxies: tuple[str, ...]
    limits: ClientLimits
    workers: int
    page: bool
    labels: bytes
    metrics: bool


def run(settings: Settings, host: str, port: int, path: Path | None) -> int:
    """Serve until a signal ends it. Return the exit code.

    It listens on a passed socket, or else on the path, or else on the address.
    """
    _log(settings)
    with (
        errors_logged(instead_of_printed=settings.log_format == "json"),
        feed_errors(),
        _opened(settings) as feed,
        _listener(host, port, path) as listener,
    ):
        if settings.workers == 1:
            _serve(settings, feed, listener, Counters())
            return 0
        if not feed.followed_by_many:
            raise click.UsageError(f"{feed.source} can be read by only one process: omit --workers")
        require_open_files(settings.workers)
        feed.close()
        # During a restart, one worker more than usual runs.
        table = multiprocessing.get_context("spawn").RawArray("d", Counters.table_cells(settings.workers + 1))
        work, timeout = partial(serve_as_worker, settings, table), GRACE_SECONDS + 5
        return supervise(work, listener, settings.workers, timeout, on_ended=Counters(table).clear)


def _log(settings: Settings) -> None:
    log_with_times(settings.log_format, settings.log_level, with_process=settings.workers > 1)


def _opened(settings: Settings) -> Feed:
    return open_feed(settings.source)


def serve_as_worker(
    settings: Settings, table: Any, listener: socket.socket, on_serving: Callable[[], object], number: int
) -> None:
    """Serve in a worker process, and call `on_serving` once it listens. `number` is its row of `table`."""
    _log(settings)
    with errors_logged(), feed_errors(), _opened(settings) as feed, listener:
        _serve(settings, feed, listener, Counters(table, number), on_serving)


def _serve(
    settings: Settings,
    feed: Feed,
    listener: socket.socket,
    counters: Counters,
    on_serving: Callable[[], object] | None = None,
) -> None:
    """Load the feed, follow it, and serve it on the socket until a signal ends it."""

    def on_listening(listening: socket.socket) -> None:
        LOG.info("listening on %s", url_of(listening))
        if on_serving is not None:
            on_serving()

    def on_second(connections: int) -> None:
        counters.set_gauge("open_connections", connections)
        app.observe()

    live = LiveIndex()
    app = create_app(
        live,
        max_age=settings.max_age,
        max_wait=settings.max_wait,
        max_waiting=settings.limits.connections // 2,
        health=Health(feed, settings.max_stale, settings.max_quiet),
        metrics=counters if settings.metrics else False,
        openapi=True,
    )
    counters.set_gauge("max_connections", settings.limits.connections)
    counters.set_gauge("workers", settings.workers)
    if settings.page:
        app.router.routes += page_routes(settings.labels)
    server = Server(
        _checked(app, settings, counters),
        access_log=settings.access_log,
        limits=settings.limits,
        proxies=settings.proxies,
        any_origin=bool(settings.cors_origins),
        count=counters.count,
        on_listening=on_listening,
        on_second=on_second if settings.metrics else None,
        on_shutdown=app.end_waits,
    )
    # The supervisor of several workers handles SIGHUP.
    hang_up = server.hang_up if settings.workers == 1 else None
    with short_pauses(feed.source), ended_by_signals(server.end, hang_up):
        with loading(feed.source, lambda: server.should_exit) as progress:
            feed.start(live, progress)
        LOG.info("%s: %d pairs, %d records rejected", feed.source, len(live.current), feed.rejected)
        with listen_errors(address_of(listener)):
            # Another process may have bound the same address and listened on it while the feed was loading.
            listener.listen()
        server.run([listener])
        counters.flush()


def _checked(app: ASGIApp, settings: Settings, counters: Counters) -> ASGIApp:
    """Return an app that checks the origin and the host of a request first, as the settings demand."""
    outer: ASGIApp = CrossOrigin(app, settings.cors_origins, counters.count) if settings.cors_origins else app
    return AllowedHosts(outer, settings.allowed_hosts, counters.count) if settings.allowed_hosts else outer


@contextmanager
def _listener(host: str, port: int, path: Path | None) -> Iterator[socket.socket]:
    """Yield the socket of the server."""
    with listen_errors("the passed socket"):
        passed = passed_socket()
    with ExitStack() as stack:
        with listen_errors(str(path) if path is not None else f"{host} port {port}"):
            listener = stack.enter_context(opened(host, port, path, passed))
        yield listener
