"""The commands `market-index pairs` and `market-index book`, which print the content of a feed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from decimal import Decimal
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TypeAlias

import click

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, PairNotFound, Tokens, parse_price, wire
from market_index_cli import terminal
from market_index_cli.console import loading
from market_index_cli.errors import EXIT_ABSENT, EXIT_FEED, EXIT_REJECTED, feed_errors
from market_index_cli.logs import log_plainly
from market_index_cli.names import containing, exact_pair, pair_of
from market_index_cli.options import BASE, FEED, HEADERS, JSON, QUOTE, converted, opened
from market_index_cli.tokens import TOKENS, Display, tokens_of
from market_index_feeds import Feed

_TERMINAL_DEPTH: Final = 15
"""The default number of levels per side on a terminal."""


_OpenSource: TypeAlias = Callable[[], Feed]

_EVERY_DIGIT: Final = click.option(
    "--every-digit",
    is_flag=True,
    help="On a terminal, show exact numbers, and each level of a book. Pipes have them always.",
)


@click.command(
    short_help="List the pairs of FEED.",
    epilog=f"""\b
Exit codes: 0, 2 wrong usage, {EXIT_FEED} FEED cannot be opened or read, {EXIT_REJECTED} a record was rejected.""",
)
@FEED
@click.option("--wide", is_flag=True, help="Do not shorten identifiers to the width of the terminal.")
@click.option(
    "--filter", "text", default="", metavar="TEXT", help="List only pairs with TEXT in an identifier or a name."
)
@_EVERY_DIGIT
@HEADERS
@TOKENS
@JSON
def pairs(
    source: str,
    *,
    wide: bool,
    text: str,
    every_digit: bool,
    headers: Path | None,
    tokens: Tokens | None,
    as_json: bool,
) -> None:
    """List the pairs of FEED: spot, best bid, best ask, spread, number of levels, and the assets.

    On a terminal, it also prints what the books reflect and when they were published, if FEED contains that.

    The minter of an asset chooses its name: only the identifier is unique. In a pipe, tabs separate the columns.
    """
    log_plainly()
    display = Display(tokens_of(source, tokens), every_digit or not sys.stdout.isatty())
    with feed_errors(), opened(source, headers) as feed:
        index = containing(text, _read(feed), display)
    if as_json:
        click.echo(wire.pair_list_to_json(index.pair_list()))
    elif sys.stdout.isatty():
        _print(terminal.pair_table(index.values(), display, _columns(), wide=wide))
        _print(terminal.freshness_lines(index.freshness))
    else:
        _print(terminal.pair_rows(index.values(), display))
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
@click.option(
    "--step",
    metavar="PRICE",
    type=converted(parse_price),
    help="On a terminal, show one level for each multiple of PRICE, a price as it is shown: bids down, asks up. The "
    "default is the sixth significant digit of the best price.",
)
@_EVERY_DIGIT
@click.option("--watch", is_flag=True, help="Show the book again whenever it changes, until a signal ends the command.")
@HEADERS
@TOKENS
@JSON
def book(
    source: str,
    base: str,
    quote: str,
    *,
    depth: int | None,
    step: Decimal | None,
    every_digit: bool,
    watch: bool,
    headers: Path | None,
    tokens: Tokens | None,
    as_json: bool,
) -> None:
    """Show the order book of BASE and QUOTE: asks above bids, the best of each in the middle.

    BASE and QUOTE are identifiers, or names that only one pair of FEED has. In a pipe, each level is one line, with
    tabs between side, price and amount.
    """
    log_plainly()
    if step is not None and every_digit:
        raise click.UsageError("--step and --every-digit exclude each other")
    display = Display(tokens_of(source, tokens), every_digit or not sys.stdout.isatty(), step)
    with feed_errors(), suppress(KeyboardInterrupt) if watch else nullcontext():
        for found, freshness in (_watched if watch else _once)(partial(opened, source, headers), base, quote, display):
            cut = found if depth is None else found.depth(depth)
            if as_json:
                click.echo(wire.order_book_to_json(cut))
            elif not sys.stdout.isatty():
                _print(terminal.ladder_rows(cut, display))
            else:
                if watch:
                    click.clear()
                _print(terminal.ladder(found, _TERMINAL_DEPTH if depth is None else depth, display, _columns()))
                _print(terminal.freshness_lines(freshness))


def _once(open_source: _OpenSource, base: str, quote: str, display: Display) -> Iterator[tuple[OrderBook, Freshness]]:
    """Yield the book of a pair, and its freshness. Of a store or a service, no other book is read."""
    pair = exact_pair(base, quote)
    with suppress(PairNotFound), open_source() as feed:
        if pair is not None and not feed.is_stream:
            found = feed.read_order_book(pair)
            yield found, Freshness() if feed.version is None else feed.version.index.freshness
            return
    with open_source() as feed:
        index = _read(feed)
    yield index.order_book(pair_of(base, quote, index, display)), index.freshness


def _read(feed: Feed) -> MarketIndex:
    with loading(feed.source) as progress:
        return feed.read(progress)


def _watched(
    open_source: _OpenSource, base: str, quote: str, display: Display
) -> Iterator[tuple[OrderBook, Freshness]]:
    """Yield the book of a pair, and its freshness, and yield it again when it changes."""
    live = LiveIndex()
    with open_source() as feed:
        with loading(feed.source) as progress:
            feed.start(live, progress)
        if feed.version is None:
            raise SystemExit(EXIT_FEED)  # the feed has logged its problem
        index, shown = live.current, None
        pair = pair_of(base, quote, index, display)
        while True:
            found = index.get(pair)
            if found is not None and found != shown:
                yield found, index.freshness
            if found is None and shown is not None:
                click.echo(str(PairNotFound(pair)), err=True)
            shown = found
            index = live.wait(after=index)


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _print(lines: Iterable[str]) -> None:
    """Print lines: without colour in a pipe or with NO_COLOR (https://no-color.org)."""
    if isinstance(sys.stdout, TextIOWrapper):
        # A name or a bar may have a character that the encoding of the terminal lacks.
        sys.stdout.reconfigure(errors="replace")
    for line in lines:
        click.echo(line, color=False if os.environ.get("NO_COLOR") else None)
