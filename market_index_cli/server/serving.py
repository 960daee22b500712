"""Serving one feed on one address, by this process or by several workers."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import click
from attrs import frozen
from starlette.types import ASGIApp

from market_index import LiveIndex
from market_index_cli.console import loading_progress, log_with_times
from market_index_cli.descriptors import require_open_files
from market_index_cli.errors import feed_errors, listen_errors
from market_index_cli.page.routes import page_routes
from market_index_cli.server.allowed_hosts import AllowedHosts
from market_index_cli.server.connection import ClientLimits
from market_index_cli.server.cross_origin import CrossOrigin
from market_index_cli.server.http_server import GRACE_SECONDS, Server
from market_index_cli.server.listeners import opened, passed_socket, url_of
from market_index_cli.server.pauses import short_pauses
from market_index_cli.server.workers import supervise
from market_index_cli.signals import ended_by_signals
from market_index_feeds import Feed, open_feed
from market_index_http import create_app, health_route, openapi_route


@frozen
class Settings:
    """The options of `serve` that every worker needs; picklable."""

    source: str
    history: int | None
    speed: float | None
    loop: bool
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


def run(settings: Settings, host: str, port: int, path: Path | None) -> int:
    """Serve until a signal ends it. Return the exit code.

    It listens on a passed socket, or else on the path, or else on the address.
    """
    with feed_errors(), _opened(settings) as feed, _listener(host, port, path) as (listener, address):
        if settings.workers == 1:
            _serve(settings, feed, listener, address)
            return 0
        if not feed.followed_by_many:
            raise click.UsageError(f"{feed.source} can be read by only one process: omit --workers")
        require_open_files(settings.workers)
        feed.close()
        log_with_times(with_process=True)
        work = partial(serve_as_worker, settings, address)
        return supervise(work, listener, settings.workers, GRACE_SECONDS + 5)


def _opened(settings: Settings) -> Feed:
    return open_feed(settings.source, history=settings.history, speed=settings.speed, loop=settings.loop)


def serve_as_worker(
    settings: Settings, address: str, listener: socket.socket, on_serving: Callable[[], object]
) -> None:
    """Serve in a worker process, and call `on_serving` once it listens."""
    try:
        with feed_errors(), _opened(settings) as feed, listener:
            _serve(settings, feed, listener, address, on_serving)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None


def _serve(
    settings: Settings,
    feed: Feed,
    listener: socket.socket,
    address: str,
    on_serving: Callable[[], object] | None = None,
) -> None:
    """Load the feed, follow it, and serve it on the socket until a signal ends it. `address` is that of messages."""
    log_with_times(with_process=settings.workers > 1)
    name = f"worker {os.getpid()}: " if settings.workers > 1 else ""

    def on_listening(listening: socket.socket) -> None:
        click.echo(f"{name}listening on {url_of(listening)}", err=True)
        if on_serving is not None:
            on_serving()

    live = LiveIndex()
    app = create_app(
        live, max_age=settings.max_age, max_wait=settings.max_wait, max_waiting=settings.limits.connections // 2
    )
    app.router.routes += [health_route(live, feed, settings.max_stale, settings.max_quiet), openapi_route()]
    if settings.page:
        app.router.routes += page_routes()
    server = Server(
        _checked(app, settings),
        access_log=settings.access_log,
        limits=settings.limits,
        proxies=settings.proxies,
        any_origin=bool(settings.cors_origins),
        on_listening=on_listening,
        on_shutdown=app.end_waits,
    )
    # The supervisor of several workers handles SIGHUP.
    hang_up = server.hang_up if settings.workers == 1 else None
    with short_pauses(feed.source), ended_by_signals(server.end, hang_up):
        with loading_progress(feed.source, lambda: server.should_exit) as progress:
            feed.start(live, progress)
        click.echo(f"{name}{feed.source}: {len(live.current)} pairs, {feed.rejected} {feed.record} rejected", err=True)
        with listen_errors(address):
            # Another process may have bound the same address and listened on it while the feed was loading.
            listener.listen()
        # A feed with a URL has full collections: they would inspect all that was loaded, which blocks all threads.
        gc.freeze()
        server.run([listener])


def _checked(app: ASGIApp, settings: Settings) -> ASGIApp:
    """Return an app that checks the origin and the host of a request first, as the settings demand."""
    outer: ASGIApp = CrossOrigin(app, settings.cors_origins) if settings.cors_origins else app
    return AllowedHosts(outer, settings.allowed_hosts) if settings.allowed_hosts else outer


@contextmanager
def _listener(host: str, port: int, path: Path | None) -> Iterator[tuple[socket.socket, str]]:
    """Yield the socket of the server, and its address for messages."""
    with listen_errors("the passed socket"):
        passed = passed_socket()
    address = str(path) if path is not None else f"{host} port {port}"
    with ExitStack() as stack:
        with listen_errors(address):
            listener = stack.enter_context(opened(host, port, path, passed))
        if listener.family != socket.AF_UNIX:
            host, port, *_ = listener.getsockname()
            address = f"{host} port {port}"
        yield listener, address
