"""Serving one feed on one address, by this process or by several workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import click
from attrs import frozen
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from market_index import LiveIndex
from market_index.display import Tokens
from market_index.wire import AS_OF, PUBLISHED_AT
from market_index_cli.console import loading
from market_index_cli.errors import listen_errors
from market_index_cli.logs import LOG
from market_index_cli.page.routes import page_routes
from market_index_cli.relay import opened_until_signal
from market_index_cli.server.cached_responses import Respond
from market_index_cli.server.counters import Counters
from market_index_cli.server.http_server import GRACE_SECONDS, Server, connections_allowed
from market_index_cli.server.listeners import bind, passed_socket, url_of
from market_index_cli.server.metrics import WorkerMetrics
from market_index_cli.server.workers import supervise
from market_index_cli.tokens import tokens_of
from market_index_feeds import Feed
from market_index_http import create_app, find_response
from market_index_http.operating import CountResponses, Health, description_route, probe_routes
from market_index_http.stream import Stream


@frozen
class Settings:
    """The arguments of `serve`; picklable."""

    feed: str
    host: str
    port: int
    uds: Path | None
    workers: int
    headers: Path | None
    add_exchanges: str | None
    log_format: str
    log_level: str
    access_log: bool
    max_age: int | None
    max_stale: float | None
    max_quiet: float | None
    cors_origin: tuple[str, ...]
    forwarded_allow_ips: tuple[str, ...]
    tokens: Path | None


def run(settings: Settings) -> int:
    """Serve until a signal ends it. Return the exit code."""
    exit_code = 0
    connections_allowed()  # before anything is opened
    with _opened(settings) as feed, _listener(settings) as listener:
        if settings.workers == 1:
            _serve(settings, feed, listener, Counters())
        elif feed.is_stream:
            raise click.UsageError(f"{feed.source} can be read by only one process: omit --workers")
        else:
            table = multiprocessing.get_context("spawn").RawArray("d", Counters.table_cells(settings.workers))
            work = partial(serve_as_worker, settings, table)
            exit_code = supervise(work, listener, settings.workers, GRACE_SECONDS + 5, Counters(table).clear)
    return exit_code


def serve_as_worker(
    settings: Settings, table: Any, listener: socket.socket, number: int, on_serving: Callable[[], object]
) -> None:
    """Serve in a worker process, and call `on_serving` once it listens. `number` is its row of `table`."""
    with _opened(settings) as feed, listener:
        _serve(settings, feed, listener, Counters(table, number), on_serving)


def _opened(settings: Settings) -> AbstractContextManager[Feed]:
    """Open the feed, until a signal."""
    logs = settings.log_format, settings.log_level
    return opened_until_signal(settings.feed, settings.headers, *logs, settings.add_exchanges)


def _listener(settings: Settings) -> socket.socket:
    """Return the passed socket, or else one that is bound to the path, or else to the address."""
    if os.environ.get("MARKET_INDEX_PORT", "").startswith("tcp://"):
        LOG.warning("MARKET_INDEX_PORT is ignored: Kubernetes sets it for a Service named market-index")
    with listen_errors("the passed socket"):
        passed = passed_socket()
    if passed is not None:
        return passed
    with listen_errors(f"{settings.host} port {settings.port}" if settings.uds is None else str(settings.uds)):
        return bind(settings.host, settings.port, settings.uds)


def _serve(
    settings: Settings,
    feed: Feed,
    listener: socket.socket,
    counters: Counters,
    on_serving: Callable[[], object] = lambda: None,
) -> None:
    """Load the feed, follow it, and serve it on the socket until a signal ends it."""

    def on_second() -> None:
        counters.set_gauge("open_connections", len(server.clients.connections))
        metrics.observe()

    live, connections = LiveIndex(), connections_allowed()
    health = Health(feed, settings.max_stale, settings.max_quiet)
    # The other half is for requests.
    stream = Stream(live, limit=max(1, connections // 2))
    metrics = WorkerMetrics(live, counters, stream, health)
    # Each worker reads the file: a large argument of a worker could block its supervisor (see `workers.Work`).
    tokens = tokens_of(settings.feed, settings.tokens) or Tokens()
    routes = (
        stream.route(),
        *probe_routes(live, health),
        metrics.route(),
        description_route(),
        *page_routes(live, tokens),
    )
    adapter = create_app(live, max_age=settings.max_age, routes=routes)
    app: ASGIApp = CountResponses(adapter, counters.count)
    respond: Respond = partial(find_response, adapter)
    if settings.cors_origin:
        respond = partial(_without_origin, respond)
        # Around the app, so that the response to an unexpected error has its fields, too.
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_origin,
            allow_methods=("GET", "HEAD"),
            allow_headers=("If-None-Match",),
            expose_headers=("ETag", AS_OF, PUBLISHED_AT),
        )
    counters.set_gauge("max_connections", connections)
    counters.set_gauge("workers", settings.workers)
    server = Server(
        app,
        respond=respond,
        access_log=settings.access_log,
        proxies=settings.forwarded_allow_ips,
        max_connections=connections,
        count=counters.count,
        on_second=on_second,
        on_shutdown=stream.end,
    )
    with loading(feed.source) as progress:
        feed.start(live, progress)
    LOG.info("%s: %d pairs, %d records rejected", feed.source, len(live.current), feed.rejected)
    with listen_errors(url_of(listener)):
        # Another process may have bound the same address and listened on it while the feed was loading.
        listener.listen()
    for number in (signal.SIGINT, signal.SIGTERM):
        # An exception before the event loop runs would leave a warning of Python.
        signal.signal(number, server.handle_exit)
    LOG.info("listening on %s", url_of(listener))
    on_serving()
    server.run([listener])


def _without_origin(respond: Respond, scope: Scope) -> Response | None:
    """Respond as the middleware of CORS does, unless the request is that of a web page of another origin."""
    if any(name == b"origin" for name, _ in scope["headers"]):
        return None
    response = respond(scope)
    if response is not None:
        response.raw_headers.append((b"vary", b"Origin"))
    return response
