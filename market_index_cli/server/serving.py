"""Serving one feed on one address, by this process or by several workers."""

from __future__ import annotations

import gc
import signal
import socket
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from attrs import frozen
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from market_index import LiveIndex
from market_index.display import Tokens
from market_index.wire import AS_OF, PUBLISHED_AT
from market_index_cli.errors import listen_errors
from market_index_cli.logs import LOG
from market_index_cli.page.routes import page_routes
from market_index_cli.relay import opened_until_signal
from market_index_cli.server.exposition import SLOT_BYTES, Exposition, clear_slot
from market_index_cli.server.http_server import GRACE_SECONDS, Server, connections_allowed
from market_index_cli.server.listeners import bind, passed_socket, url_of
from market_index_cli.server.workers import shared_buffer, supervise
from market_index_cli.tokens import tokens_of
from market_index_feeds import Feed
from market_index_feeds.sources import kind_of
from market_index_http import create_app, find_response
from market_index_http.operating import Health, description_route, probe_routes
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
            _serve(settings, feed, listener, bytearray(SLOT_BYTES), 0)
        elif kind_of(settings.feed).has_quota:
            raise click.UsageError(f"each worker would read {feed.name}: relay it into a store, and serve the store")
        elif feed.is_stream:
            raise click.UsageError(f"{feed.name} can be read by only one process: omit --workers")
        else:
            slots = shared_buffer(settings.workers * SLOT_BYTES)
            work = partial(serve_as_worker, settings, slots)
            exit_code = supervise(work, listener, settings.workers, GRACE_SECONDS + 5, partial(clear_slot, slots))
    return exit_code


def serve_as_worker(settings: Settings, slots: Any, listener: socket.socket, number: int) -> None:
    """Serve in a worker process. `number` is that of its slot for metrics."""
    with _opened(settings) as feed, listener:
        _serve(settings, feed, listener, slots, number)


def _opened(settings: Settings) -> AbstractContextManager[Feed]:
    """Open the feed, until a signal."""
    logs = settings.log_format, settings.log_level
    return opened_until_signal(settings.feed, settings.headers, *logs, settings.add_exchanges)


def _listener(settings: Settings) -> socket.socket:
    """Return the passed socket, or else one that is bound to the path, or else to the address."""
    with listen_errors("the passed socket"):
        passed = passed_socket()
    if passed is not None:
        return passed
    with listen_errors(f"{settings.host} port {settings.port}" if settings.uds is None else str(settings.uds)):
        return bind(settings.host, settings.port, settings.uds)


def _serve(settings: Settings, feed: Feed, listener: socket.socket, slots: Any, number: int) -> None:
    """Load the feed, follow it, and serve it on the socket until a signal ends it."""
    live, exposition = LiveIndex(), Exposition(slots, number)
    server = compose(settings, live, feed, exposition)
    feed.start(live)
    gc.freeze()  # a full collection would inspect all books, and block all threads
    LOG.info("market-index %s: serving %s", version("market-index"), feed.name)
    LOG.info("%s: %d pairs, %d records rejected", feed.name, len(live.current), feed.health.rejected)
    with listen_errors(url_of(listener)):
        # Another process may have bound the same address and listened on it while the feed was loading.
        listener.listen()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        # An exception before the event loop runs would leave a warning of Python.
        signal.signal(signal_number, server.handle_exit)
    LOG.info("listening on %s", url_of(listener))
    exposition.write()  # the supervisor then knows that a worker serves
    server.run([listener])


def compose(settings: Settings, live: LiveIndex, feed: Feed, exposition: Exposition) -> Server:
    """Return the server of an app with all routes."""
    was_ready = True

    def on_second() -> None:
        nonlocal was_ready
        failures = health.failures()
        if failures and was_ready:
            LOG.warning("not ready: %s", "; ".join(failures))
        elif not (failures or was_ready):
            LOG.info("ready again")
        was_ready = not failures
        if settings.workers > 1:
            exposition.write()

    def on_shutdown() -> None:
        LOG.info("shutting down: %d connections are open", len(server.clients.connections))
        stream.end()

    health = Health(feed.health, settings.max_stale, settings.max_quiet)
    # The other half is for requests.
    stream = Stream(live, limit=connections_allowed() // 2)
    # Each worker reads the file: a large argument of a worker could block its supervisor (see `workers.Work`).
    tokens = tokens_of(settings.feed, settings.tokens) or Tokens()
    routes = (
        stream.route(),
        *probe_routes(live, health),
        exposition.metrics.route(exposition.text),
        description_route(),
        *page_routes(live, tokens),
    )
    adapter = create_app(live, max_age=settings.max_age, routes=routes)
    watched = exposition.metrics.watch(
        adapter,
        live,
        health=health,
        streams=stream,
        server=lambda: {"workers": settings.workers, **server.numbers()},
        name=str(exposition.worker),
    )
    app: ASGIApp = adapter
    if settings.cors_origin:
        # Around the app, so that the response to an unexpected error has its fields, too.
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_origin,
            allow_methods=("GET", "HEAD"),
            allow_headers=("If-None-Match",),
            expose_headers=("ETag", AS_OF, PUBLISHED_AT),
        )
    server = Server(
        app,
        respond=None if settings.cors_origin else partial(find_response, adapter),
        access_log=settings.access_log,
        proxies=settings.forwarded_allow_ips,
        responses=watched.responses,
        on_second=on_second,
        on_shutdown=on_shutdown,
    )
    return server
