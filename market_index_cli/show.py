"""The commands `market-index pairs` and `market-index book`, which print the content of a feed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import click

from market_index import AssetId, Freshness, MarketIndex, OrderBook, Pair, wire
from market_index_cli import terminal
from market_index_cli.console import loading_progress, log_plainly
from market_index_cli.errors import EXIT_ABSENT, EXIT_FEED, EXIT_REJECTED, feed_errors
from market_index_cli.options import BASE, FEED, JSON, QUOTE
from market_index_feeds import open_feed

_TERMINAL_DEPTH: Final = 15
"""The default number of levels per side on a terminal."""


@click.command(
    short_help="List the pairs of FEED.",
    epilog=f"""\b
Exit codes: 0, 2 wrong usage, {EXIT_FEED} FEED cannot be opened or read, {EXIT_REJECTED} a record was rejected.""",
)
@FEED
@click.option("--wide", is_flag=True, help="Do not shorten identifiers to the width of the terminal.")
@JSON
def pairs(source: str, *, wide: bool, as_json: bool) -> None:
    """List the pairs of FEED: spot, best bid, best ask, spread, number of levels, and the assets.

    On a terminal, it also prints what the books reflect and how long ago they were published, if FEED contains that.

    The minter of an asset chooses its name: only the identifier is unique. In a pipe, tabs separate the columns.
    """
    log_plainly()
    with feed_errors(), open_feed(source) as feed, loading_progress(feed.source) as progress:
        index = feed.read(progress)
    _show_pairs(index, wide=wide, as_json=as_json)
    if feed.rejected:
        raise SystemExit(EXIT_REJECTED)


@click.command(
    short_help="Show one order book of FEED.",
    epilog=f"""\b
Example:
  market-index book market.db ADA 8db269c3ec630e06ae29f74bc39edd1f87c819f1056206e879a1cd61:446a65644d6963726f555344

\b
Exit codes: 0, {EXIT_ABSENT} FEED does not track the pair, 2 wrong usage, {EXIT_FEED} FEED cannot be opened or read.""",
)
@FEED
@BASE
@QUOTE
@click.option(
    "--depth",
    metavar="N",
    type=click.IntRange(0),
    help=f"Show the best N levels of each side. The default is {_TERMINAL_DEPTH} on a terminal, and all in a pipe.",
)
@JSON
def book(source: str, base: AssetId, quote: AssetId, *, depth: int | None, as_json: bool) -> None:
    """Show the order book of BASE and QUOTE: asks above bids, the best of each in the middle.

    In a pipe, each level is one line, with tabs between side, price and amount.
    """
    log_plainly()
    with feed_errors(), open_feed(source) as feed:
        found = feed.read_order_book(Pair(base, quote))
    _show_book(found, feed.freshness, depth, as_json=as_json)


def _show_pairs(index: MarketIndex, *, wide: bool, as_json: bool) -> None:
    if as_json:
        click.echo(wire.pair_list_to_json(index.pair_list()))
    elif sys.stdout.isatty():
        _print(terminal.pair_table(index.values(), _terminal(), wide=wide))
        _print_freshness(index.freshness)
    else:
        _print(terminal.pair_rows(index.values()))


def _show_book(book: OrderBook, freshness: Freshness, depth: int | None, *, as_json: bool) -> None:
    cut = book if depth is None else book.depth(depth)
    if as_json:
        click.echo(wire.order_book_to_json(cut))
    elif sys.stdout.isatty():
        _print(terminal.ladder(book, _TERMINAL_DEPTH if depth is None else depth, _terminal()))
        _print_freshness(freshness)
    else:
        _print(terminal.ladder_rows(cut))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _print_freshness(freshness: Freshness) -> None:
    _print(terminal.freshness_lines(freshness, datetime.now(UTC), _terminal()))


def _terminal() -> terminal.Terminal:
    return terminal.Terminal(
        columns=shutil.get_terminal_size().columns,
        colour=terminal.wants_colour(),
        blocks=terminal.can_show_blocks(sys.stdout.encoding),
    )
