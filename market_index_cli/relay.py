"""The command `market-index relay`, which keeps a store the same as a feed."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click

from market_index_cli import options
from market_index_cli.console import interrupt_on_sigterm
from market_index_cli.errors import feed_errors, required_extra
from market_index_cli.logs import LOG, log_with_times
from market_index_feeds import Feed, Receipt, Store, mirror, open_store
from market_index_feeds.sources import Contents, kind_of, open_keeper


def _feed_and_store(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    feed = os.environ.get("MARKET_INDEX_FEED")
    found = (feed, *names) if feed and len(names) == 1 else names
    if len(found) != 2:
        raise click.UsageError("FEED and STORE must be given, or STORE alone with the variable MARKET_INDEX_FEED")
    return found


@click.command(context_settings=options.VARIABLES)
@click.argument("names", metavar="[FEED] STORE", nargs=-1, callback=_feed_and_store)
@options.WAIT
@options.HEADERS
@options.ADD_EXCHANGES
@options.LOG_FORMAT
@options.LOG_LEVEL
@options.option(
    "--metrics-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Serve /livez, /readyz, /healthz and /metrics on this port; 0 takes a free one. It needs the extra server.",
)
@options.HOST
@options.MAX_STALE
@options.MAX_QUIET
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
    with opened_until_signal(source, headers, log_format, log_level, add_exchanges) as feed, ExitStack() as stack:
        if feed.is_stream and kind_of(source).contents is Contents.CHANGES:
            raise click.UsageError(
                "FEED must have all pairs of STORE, got a stream of order books: use market-index publish"
            )
        keeper = stack.enter_context(open_keeper(target))
        is_keeping, on_change = keeper.is_keeping, lambda: None
        if metrics_port is not None:
            with required_extra("--metrics-port", "server"):
                from market_index_cli.server.relay_server import serve_status  # noqa: PLC0415  # it needs a web stack
            limits = max_stale, max_quiet
            is_keeping, on_change = stack.enter_context(serve_status(feed, is_keeping, limits, host, metrics_port))
        event = "relaying %s into %s: %d pairs, revision %d"
        mirror_logged(event, feed, lambda: open_store(target, wait=wait), is_keeping, on_change)


@contextmanager
def opened_until_signal(
    source: str, headers: Path | None, log_format: str, log_level: str, add_exchanges: str | None = None
) -> Iterator[Feed]:
    """Start the log, and open a feed. SIGINT and SIGTERM end the block; an error that ends it is logged."""
    log_with_times(log_format, log_level)
    interrupt_on_sigterm()
    try:
        with suppress(KeyboardInterrupt), feed_errors(), options.opened(source, headers, add_exchanges) as feed:
            yield feed
    except click.ClickException as error:
        LOG.error("%s", error.format_message())
        sys.exit(error.exit_code)


def mirror_logged(
    event: str,
    feed: Feed,
    open_target: Callable[[], Store],
    is_keeping: Callable[[], bool] = lambda: True,
    on_change: Callable[[], object] = lambda: None,
) -> None:
    """Make a target equal to a feed until an exception ends it, and log when it is equal for the first time.

    `event` is the text of the log, for the feed, the target, the number of pairs, and the number of the position.
    `on_change` is called after each change of the target.
    """
    is_first = True

    def on_written(target: Store, receipt: Receipt) -> None:
        nonlocal is_first
        on_change()
        if is_first:
            is_first = False
            gc.freeze()  # a full collection would inspect all books, and block all threads
            pairs = 0 if feed.version is None else len(feed.version.index)
            LOG.info(event, feed.name, target.name, pairs, receipt.position.number)

    mirror(feed, open_target, on_written=on_written, is_keeping=is_keeping)
