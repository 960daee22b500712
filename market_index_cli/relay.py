"""The command `market-index relay`, which keeps a store the same as a feed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from market_index.errors import missing_extra
from market_index_cli.console import interrupt_on_sigterm, loading
from market_index_cli.errors import EXIT_USAGE, Failed, feed_errors
from market_index_cli.logs import LOG, log_with_times
from market_index_cli.options import (
    ADD_EXCHANGES,
    HEADERS,
    HOST,
    LOG_FORMAT,
    LOG_LEVEL,
    MAX_QUIET,
    MAX_STALE,
    WAIT,
    opened,
    option,
)
from market_index_feeds import Feed, Receipt, Store, mirror, open_store
from market_index_feeds.sources import Contents, kind_of, open_keeper

if TYPE_CHECKING:
    from market_index_cli.server.relay_server import RelayStatus


def _feed_and_store(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    feed = os.environ.get("MARKET_INDEX_FEED")
    found = (feed, *names) if feed and len(names) == 1 else names
    if len(found) != 2:
        raise click.UsageError("FEED and STORE must be given, or STORE alone with the variable MARKET_INDEX_FEED")
    return found


@click.command(context_settings={"auto_envvar_prefix": "MARKET_INDEX"})
@click.argument("names", metavar="[FEED] STORE", nargs=-1, callback=_feed_and_store)
@WAIT
@HEADERS
@ADD_EXCHANGES
@LOG_FORMAT
@LOG_LEVEL
@option(
    "--metrics-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Serve /livez, /readyz, /healthz and /metrics on this port; 0 takes a free one. It needs the extra server.",
)
@HOST
@MAX_STALE
@MAX_QUIET
def relay(
    names: tuple[str, str],
    *,
    wait: float,
    headers: Path | None,
    add_exchanges: str | None,
    log_format: str,
    log_level: str,
    metrics_port: int | None,
    host: str,
    max_stale: float | None,
    max_quiet: float | None,
) -> None:
    """Keep STORE the same as FEED.

    STORE becomes equal to each version of FEED, until a signal or the end of FEED. A pair that FEED does not have is
    retracted; while a record of FEED is invalid, only if FEED had it before. No other program may publish into STORE,
    but a second relay may run: it waits, and takes over within 15 seconds if the first one ends. While STORE cannot be
    written, the relay retries. A stream of order books is published, not relayed.

    The variable MARKET_INDEX_FEED can name FEED instead, for example if it contains a password.

    \b
    Example:
      market-index relay market.db nats://127.0.0.1:4222/books
    """
    source, target = names
    # `realpath` resolves links and relative paths, and compares URLs as texts.
    if os.path.realpath(source) == os.path.realpath(target):
        raise click.UsageError("STORE must be another one than FEED")
    serve_status = None if metrics_port is None else _status_server()
    with opened_until_signal(source, headers, log_format, log_level, add_exchanges) as feed:
        if feed.is_stream and kind_of(source).contents is Contents.CHANGES:
            raise click.UsageError(
                "FEED must have all pairs of STORE, got a stream of order books: use market-index publish"
            )
        event = "relaying %s into %s: %d pairs, revision %d"
        with ExitStack() as stack:
            keeper = stack.enter_context(open_keeper(target))
            is_keeping, on_written = keeper.is_keeping, None
            if serve_status is not None:
                status = stack.enter_context(serve_status(feed, (max_stale, max_quiet), host, metrics_port))
                is_keeping, on_written = partial(status.on_version, keeper.is_keeping), status.on_written
            mirror_logged(event, feed, lambda: open_store(target, wait=wait), is_keeping, on_written)


def _status_server() -> Callable[..., AbstractContextManager[RelayStatus]]:
    try:
        from market_index_cli.server.relay_server import serve_status  # noqa: PLC0415  # only this needs a web stack
    except ModuleNotFoundError as missing:
        raise Failed(EXIT_USAGE, str(missing_extra("--metrics-port", "server", missing))) from None
    return serve_status


@contextmanager
def opened_until_signal(
    source: str, headers: Path | None, log_format: str, log_level: str, add_exchanges: str | None = None
) -> Iterator[Feed]:
    """Start the log, and open a feed. SIGINT and SIGTERM end the block; an error that ends it is logged."""
    log_with_times(log_format, log_level)
    interrupt_on_sigterm()
    try:
        with suppress(KeyboardInterrupt), feed_errors(), opened(source, headers, add_exchanges=add_exchanges) as feed:
            yield feed
    except click.ClickException as error:
        LOG.error("%s", error.format_message())
        sys.exit(error.exit_code)


def mirror_logged(
    event: str,
    feed: Feed,
    open_target: Callable[[], Store],
    is_keeping: Callable[[], bool] = lambda: True,
    on_change: Callable[[], object] | None = None,
) -> None:
    """Make a target equal to a feed until an exception ends it, and log when it is equal for the first time.

    `event` is the text of the log, for the feed, the target, the number of pairs, and the number of the position.
    `on_change` is called after each change of the target.
    """
    with ExitStack() as stack:
        progress = stack.enter_context(loading(feed.name))
        is_first = True

        def on_written(target: Store, receipt: Receipt) -> None:
            nonlocal is_first
            if on_change is not None:
                on_change()
            if is_first:
                is_first = False
                stack.close()
                pairs = 0 if feed.version is None else len(feed.version.index)
                LOG.info(event, feed.name, target.name, pairs, receipt.position.number)

        mirror(feed, open_target, progress=progress, on_written=on_written, is_keeping=is_keeping)
