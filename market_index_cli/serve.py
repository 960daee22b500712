"""The command `market-index serve` and its options. Only this command imports the server, `market_index_cli.server`."""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import click

from market_index.errors import safe_repr
from market_index_cli import options
from market_index_cli.errors import required_extra

# As browsers send it: in lower case, and without the port that its scheme implies.
_ORIGIN: Final = re.compile(r"\*|(?!http:.*:80$|https:.*:443$)[a-z][a-z0-9+.-]*://[a-z0-9_.:\[\]-]+")


def _origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError(f"must be an origin in lower case, such as https://example.com, got {safe_repr(text)}")
    return text


def _address(text: str) -> str:
    if text != "*":
        ip_network(text)  # its error says what must hold
    return text


@click.command(context_settings=options.VARIABLES)
@click.argument("feed", metavar="[FEED]", envvar="MARKET_INDEX_FEED", default="sample:")
@options.HOST
@options.option("--port", default=8000, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@options.option(
    "--uds",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Listen on a Unix socket at PATH instead of an address, for a proxy on this machine. A socket that systemd "
    "passes takes precedence over PATH and the address.",
)
@options.option(
    "--workers",
    default=1,
    metavar="N",
    type=click.IntRange(1, 256),
    help="Number of processes that serve. Each follows FEED by itself, and holds all books in memory.",
)
@options.HEADERS
@options.ADD_EXCHANGES
@options.LOG_FORMAT
@options.LOG_LEVEL
@options.option("--access-log/--no-access-log", default=False, help="Log every request, at the cost of throughput.")
@options.option(
    "--max-age",
    metavar="SECONDS",
    type=click.IntRange(0, 2**31),
    help="How long clients may cache a response without revalidating it; they may see old prices. By default they "
    "revalidate.",
)
@options.MAX_STALE
@options.MAX_QUIET
@options.option(
    "--cors-origin",
    multiple=True,
    metavar="ORIGIN",
    type=options.converted(_origin),
    help="Allow web pages of ORIGIN to read the API, exactly as browsers send it, such as https://example.com; * for "
    "any. Can be given more than once. Each response then costs more processor time.",
)
@options.option(
    "--forwarded-allow-ips",
    multiple=True,
    metavar="ADDRESS",
    type=options.converted(_address),
    help="Log the client that X-Forwarded-For names, if the request comes from ADDRESS: an IP address, a network such "
    "as 10.0.0.0/8, or * for any, as a Unix socket requires. Can be given more than once. By default no proxy is "
    "trusted.",
)
@options.TOKENS
def serve(**arguments: Any) -> None:
    """Serve FEED over HTTP.

    The pair list and the order book of every pair are served. FEED is followed: a change goes live when it is published
    into a store or appended to a file. Without FEED, a sample is served (sample:): changes of a real market, at prices
    that are made up. The variable MARKET_INDEX_FEED can also name FEED, and market-index --help says which kinds there
    are.

    GET / is a page that shows the books. GET /healthz reports the state of FEED, GET /metrics has the metrics of
    Prometheus, and GET /openapi.json describes the API.

    \b
    Examples:
      market-index serve
      market-index serve market.db --workers 2
      market-index serve books.ndjson --host 0.0.0.0 --port 9000
      producer | MARKET_INDEX_PORT=9000 market-index serve -
      market-index serve orders:events.ndjson --workers 2
      market-index serve kupo:http://127.0.0.1:1442
    """
    with required_extra("serve", "server"):
        from market_index_cli.server.serving import Settings, run  # noqa: PLC0415  # other commands need no web stack
    raise SystemExit(run(Settings(**arguments)))
