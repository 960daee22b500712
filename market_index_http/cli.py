"""The command `market-index`: joins a feed, a live index, the app and the server."""

from __future__ import annotations

import logging
import socket
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from market_index import LiveIndex
from market_index_feeds import Feed, FeedError, Progress, open_feed
from market_index_http import create_app
from market_index_http.server import Server, bind

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_FEED: Final = 3
"""The feed cannot be opened."""

EXIT_LISTEN: Final = 4
"""The address cannot be listened on."""

_LARGE: Final = 4 * 1024 * 1024
"""From how many bytes on it is worth to show how loading gets on."""


class _FeedFailed(click.ClickException):
    exit_code = EXIT_FEED


class _AddressFailed(click.ClickException):
    exit_code = EXIT_LISTEN


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="market-index", prog_name="market-index")
def main() -> None:
    """Read and serve Cardano order books."""


@main.command(
    short_help="Serve FEED over HTTP.",
    epilog=f"""\b
Examples:
  market-index serve books.ndjson
  market-index serve books.ndjson --host 0.0.0.0 --port 9000
  producer | MARKET_INDEX_PORT=9000 market-index serve -

\b
Exit codes: 0 ended by a signal, 2 wrong usage, {EXIT_FEED} FEED cannot be opened,
{EXIT_LISTEN} the address cannot be listened on.""",
)
@click.argument("source", metavar="FEED", envvar="MARKET_INDEX_FEED")
@click.option(
    "--host",
    default="127.0.0.1",
    envvar="MARKET_INDEX_HOST",
    show_default=True,
    show_envvar=True,
    help="Address to listen on. The default is reached from this machine alone.",
)
@click.option(
    "--port",
    default=8000,
    envvar="MARKET_INDEX_PORT",
    show_default=True,
    show_envvar=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--access-log/--no-access-log",
    default=False,
    envvar="MARKET_INDEX_ACCESS_LOG",
    show_default=True,
    show_envvar=True,
    help="Log every request, at the cost of throughput.",
)
@click.option(
    "--max-age",
    default=None,
    metavar="SECONDS",
    envvar="MARKET_INDEX_MAX_AGE",
    show_envvar=True,
    type=click.IntRange(0),
    help="For how long clients may use an answer without asking again; they may see old prices. By default they ask.",
)
def serve(source: str, host: str, port: int, *, access_log: bool, max_age: int | None) -> None:
    """Serve FEED over HTTP: the pair list and the order book of every pair.

    FEED is a file of order books, one a line in the shape that the order-book endpoint answers, or - for standard
    input. A file is followed: appended lines go live, a file renamed over it is read anew.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("market_index_feeds").setLevel(logging.INFO)
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    live = LiveIndex()
    server = Server(create_app(live, max_age=max_age), access_log=access_log, on_listening=_say_where)
    try:
        with server.ended_by_signals(), open_feed(source) as feed, _bound(host, port) as listener:
            with _progress(feed, server) as progress:
                feed.start(live, progress)
            click.echo(f"{feed.source}: {len(live.current)} pairs, {feed.refused} lines refused", err=True)
            with _telling_of(host, port):
                # Another process can have bound the address as well, and listen since the feed was being loaded.
                listener.listen()
            server.run([listener])
    except FeedError as error:
        raise _FeedFailed(str(error)) from None


def _say_where(listener: socket.socket) -> None:
    host, port, *_ = listener.getsockname()
    click.echo(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}", err=True)


def _bound(host: str, port: int) -> socket.socket:
    with _telling_of(host, port):
        return bind(host, port)


@contextmanager
def _telling_of(host: str, port: int) -> Iterator[None]:
    """Turn whatever keeps the address from being listened on into what the command says and exits with."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _AddressFailed(f"cannot listen on {host} port {port}: {reason}") from None


@contextmanager
def _progress(feed: Feed, server: Server) -> Iterator[Progress]:
    """Show on a terminal how the loading of a large source gets on, and end where that was asked for."""
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    with ExitStack() as stack:
        bar: Any = None

        def told(done: int, total: int) -> None:
            nonlocal bar
            if server.should_exit:
                raise SystemExit(0)
            if bar is None and on_terminal and total >= _LARGE:
                bar = stack.enter_context(click.progressbar(length=total, label=feed.source, file=sys.stderr))
            if bar is not None:
                bar.update(done - bar.pos)

        yield told
