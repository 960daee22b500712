"""The command `market-index serve` and its options. Only this command imports the server, `market_index_cli.server`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from market_index import Tokens
from market_index_cli.errors import EXIT_FEED, EXIT_LISTEN, server_imports
from market_index_cli.options import (
    LOG_FORMAT,
    LOG_FORMAT_HELP,
    LOG_LEVEL,
    LOG_LEVEL_HELP,
    Host,
    Origin,
    ProxyAddress,
    Seconds,
)
from market_index_cli.tokens import TokenFile

Command = TypeVar("Command", bound=Callable[..., Any])


def _option(name: str, *names: str, **attributes: Any) -> Callable[[Command], Command]:
    """Return an option that is also read from the environment: `--max-age` from MARKET_INDEX_MAX_AGE."""
    variable = name.partition("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(name, *names, envvar=f"MARKET_INDEX_{variable}", show_envvar=True, **attributes)


@click.command(
    short_help="Serve FEED over HTTP.",
    context_settings={"show_default": True},
    epilog=f"""\b
Examples:
  market-index serve market.db --workers 2
  market-index serve books.ndjson --host 0.0.0.0 --port 9000
  producer | MARKET_INDEX_PORT=9000 market-index serve -
  market-index serve orders:events.ndjson --workers 2
  market-index serve "replay:recording.ndjson?speed=10&loop"

\b
Exit codes: 0 ended by a signal, 2 wrong usage, {EXIT_FEED} FEED cannot be opened,
{EXIT_LISTEN} the address cannot be listened on.""",
)
@click.argument("source", metavar="FEED", envvar="MARKET_INDEX_FEED")
@_option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on. The default is reachable only from this machine.",
)
@_option(
    "--port",
    default=8000,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@_option(
    "--uds",
    "path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Listen on a Unix socket at PATH instead of an address, for a proxy on this machine. A socket that systemd "
    "passes takes precedence over PATH and the address.",
)
@_option(
    "--workers",
    default=1,
    metavar="N",
    type=click.IntRange(1, 256),
    help="Number of processes that serve. Each follows FEED by itself, and holds all books in memory. SIGHUP restarts "
    "them one after another, without a gap.",
)
@_option(
    "--log-format",
    default="text",
    type=LOG_FORMAT,
    help=LOG_FORMAT_HELP,
)
@_option(
    "--log-level",
    default="info",
    type=LOG_LEVEL,
    help=LOG_LEVEL_HELP,
)
@_option(
    "--access-log/--no-access-log",
    default=False,
    help="Log every request, at the cost of throughput.",
)
@_option(
    "--max-age",
    metavar="SECONDS",
    type=click.IntRange(0, 2**31),
    help="How long clients may cache a response without revalidating it; they may see old prices. By default they "
    "revalidate.",
)
@_option(
    "--max-wait",
    default=30,
    metavar="SECONDS",
    type=click.IntRange(0, 86_400),
    help="How long a request with 'Prefer: wait' may wait for a change; 0 lets none wait. At most half of the allowed "
    "connections wait.",
)
@_option(
    "--max-stale",
    metavar="SECONDS",
    type=Seconds(),
    help="How long FEED may be unreachable before /healthz responds with 503. By default without limit.",
)
@_option(
    "--max-quiet",
    metavar="SECONDS",
    type=Seconds(),
    help="How long the publisher may publish nothing before /healthz responds with 503. By default without limit.",
)
@_option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    type=Origin(),
    help="Allow web pages of ORIGIN, such as https://example.com, to read the API; * for any. Can be given more than "
    "once.",
)
@_option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="HOST",
    type=Host(),
    help="Reject requests whose Host field names another host than HOST; any port is allowed. Can be given more than "
    "once. By default any host is allowed.",
)
@_option(
    "--forwarded-allow-ips",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    type=ProxyAddress(),
    help="Log the client that X-Forwarded-For names, if the request comes from ADDRESS: an IP address, a network such "
    "as 10.0.0.0/8, or * for any, as a Unix socket requires. Can be given more than once. By default no proxy is "
    "trusted.",
)
@_option(
    "--head-timeout",
    default=10,
    metavar="SECONDS",
    type=click.IntRange(1),
    help="How long the head of a request may take to arrive, and how long a new connection may send nothing.",
)
@_option(
    "--keep-alive-timeout",
    default=5,
    metavar="SECONDS",
    type=click.IntRange(1),
    help="How long a connection may be idle after a response.",
)
@_option(
    "--send-timeout",
    default=30,
    metavar="SECONDS",
    type=click.IntRange(1, 86_400),
    help="How long a client may accept no byte of a response before it is disconnected, on Linux.",
)
@_option(
    "--max-connections",
    metavar="N",
    type=click.IntRange(1),
    help="Maximum number of connections per process; further ones get 503. By default the limit of open files "
    "(ulimit -n) less 64.",
)
@_option(
    "--page/--no-page",
    default=True,
    help="Serve a web page at / that shows the pairs and their order books.",
)
@_option(
    "--tokens",
    metavar="FILE",
    type=TokenFile(),
    help="Show names and whole units on the page by the token registry (CIP-26): its folder of mappings, or a file of "
    "its entries. The API stays in smallest units.",
)
@_option(
    "--metrics/--no-metrics",
    default=True,
    help="Serve /metrics in the Prometheus text format. With --workers it reports the sum of all workers.",
)
def serve(
    source: str,
    host: str,
    port: int,
    path: Path | None,
    *,
    workers: int,
    log_format: str,
    log_level: str,
    access_log: bool,
    max_age: int | None,
    max_wait: int,
    max_stale: float | None,
    max_quiet: float | None,
    cors_origins: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    proxies: tuple[str, ...],
    head_timeout: int,
    keep_alive_timeout: int,
    send_timeout: int,
    max_connections: int | None,
    page: bool,
    tokens: Tokens | None,
    metrics: bool,
) -> None:
    """Serve FEED over HTTP: the pair list and the order book of every pair.

    FEED is a store such as market.db or nats://127.0.0.1:4222/books, a file with one order book per line in the
    JSON of the order-book endpoint, - for standard input, events of orders (orders:events.ndjson, or orders:-), a
    recording (replay:recording.ndjson), or the base URL of another service. FEED is followed: a change goes live
    when it is published into a store or appended to a file. GET / is a page that shows the books, GET /healthz
    reports the state of FEED, GET /metrics the metrics of Prometheus, and GET /openapi.json describes the API. The
    variable MARKET_INDEX_FEED can also name FEED.
    """
    with server_imports():
        from market_index_cli.page.routes import labels_json  # noqa: PLC0415  # no web stack elsewhere
        from market_index_cli.server.connection import ClientLimits, connections_allowed  # noqa: PLC0415  # no web stack elsewhere
        from market_index_cli.server.serving import Settings, run  # noqa: PLC0415  # other commands need no web stack
    limits = ClientLimits(head_timeout, keep_alive_timeout, send_timeout, max_connections or connections_allowed())
    settings = Settings(
        source,
        log_format,
        log_level,
        access_log,
        max_age,
        max_wait,
        max_stale,
        max_quiet,
        cors_origins,
        allowed_hosts,
        proxies,
        limits,
        workers,
        page,
        labels_json(tokens or Tokens()),
        metrics,
    )
    raise SystemExit(run(settings, host, port, path))
