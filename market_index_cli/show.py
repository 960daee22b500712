"""The commands `market-index pairs` and `market-index book`, which print the content of a feed."""

from __future__ import annotations

import select
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import click

from market_index import MarketIndex, OrderBook, Pair, PairNotFound, wire
from market_index_cli import options, terminal
from market_index_cli.console import interrupt_on_sigterm
from market_index_cli.errors import EXIT_ABSENT, EXIT_FEED, EXIT_REJECTED, feed_errors
from market_index_cli.logs import log_plainly
from market_index_cli.names import exact_pair, pair_of
from market_index_cli.tokens import NO_VALUE, Display, display_of
from market_index_feeds import Feed

_TERMINAL_DEPTH: Final = 15
"""The default number of levels per side on a terminal."""

_FIXED_LINES: Final = 12
"""The most lines of a book on a terminal beside its levels, and the one of the cursor."""

_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"

_OpenFeed: TypeAlias = Callable[[], Feed]


@click.command
@options.FEED
@options.HEADERS
@options.TOKENS
@options.JSON
def pairs(source: str, *, headers: Path | None, tokens: Path | None, as_json: bool) -> None:
    """List the pairs of FEED.

    A pair has spot, best bid, best ask, spread, the number of levels, and the assets. On a terminal, it also prints
    what the books reflect and when they were published, if FEED contains that.

    The minter of an asset chooses its name: only the identifier is unique. In a pipe, tabs separate the columns.
    """
    log_plainly()
    display = display_of(source, tokens, headers, is_exact=not sys.stdout.isatty())
    with feed_errors(), options.opened(source, headers) as feed:
        index = feed.read()
    if as_json:
        click.echo(wire.pair_list_to_json(index.pair_list()))
    elif sys.stdout.isatty():
        click.echo(
            "\n".join([*terminal.pair_table(index.values(), display), *terminal.freshness_lines(index.freshness)])
        )
    else:
        click.echo("\n".join(map("\t".join, terminal.pair_rows(index.values(), display))))
    if feed.health.rejected:
        raise SystemExit(EXIT_REJECTED)


@click.command
@options.FEED
@options.BASE
@options.QUOTE
@click.option(
    "--depth",
    metavar="N",
    type=click.IntRange(0),
    help=f"Show the best N levels of each side. The default is {_TERMINAL_DEPTH} on a terminal, and all in a pipe.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Show the book again whenever it changes, until a signal or the end of FEED. A terminal shows as many levels "
    "as it has room for.",
)
@options.HEADERS
@options.TOKENS
@options.JSON
def book(
    source: str,
    base: str,
    quote: str,
    *,
    depth: int | None,
    watch: bool,
    headers: Path | None,
    tokens: Path | None,
    as_json: bool,
) -> None:
    """Show one order book of FEED.

    Asks are above bids, and the best of each in the middle. BASE and QUOTE are identifiers, or names that only one pair
    of FEED has. In a pipe, each level is one line, with tabs between side, price and amount. With --watch, each state
    then begins with a line of the as_of, and a blank line is between two states.

    \b
    Example:
      market-index book market.db ADA 8db269c3ec630e06ae29f74bc39edd1f87c819f1056206e879a1cd61:446a65644d6963726f555344
    """
    log_plainly()
    display = display_of(source, tokens, headers, is_exact=not sys.stdout.isatty())
    read = _watched if watch else _once
    shown, separator = list[str](), list[str]()
    with feed_errors(), suppress(KeyboardInterrupt) if watch else nullcontext():
        for pair, index in read(partial(options.opened, source, headers), base, quote, display):
            found = index.get(pair)
            lines = [] if found is None else _lines(found, depth, display, watch=watch, as_json=as_json)
            if lines == shown:
                continue
            shown = lines
            if found is None:
                click.echo(f"Pair {pair} not found", err=True)
                continue
            if sys.stdout.isatty() and not as_json:
                lines = [*lines, *terminal.freshness_lines(index.freshness)]
                lines = _frame(lines) if watch else lines
            elif watch and not as_json:
                lines, separator = [*separator, f"as_of\t{index.as_of or NO_VALUE}", *lines], [""]
            click.echo("\n".join(lines))


def _lines(found: OrderBook, depth: int | None, display: Display, *, watch: bool, as_json: bool) -> list[str]:
    """Return the lines of a book, as JSON or for standard output."""
    if sys.stdout.isatty() and not as_json:
        depth = _TERMINAL_DEPTH if depth is None else depth
        if watch:
            depth = min(depth, max((shutil.get_terminal_size().lines - _FIXED_LINES) // 2, 1))
        return [*terminal.ladder(found, depth, display)]
    cut = found if depth is None else found.depth(depth)
    return [wire.order_book_to_json(cut).decode()] if as_json else [*map("\t".join, terminal.ladder_rows(cut, display))]


def _frame(lines: Iterable[str]) -> list[str]:
    """Return the text that draws lines over those before. To clear the screen first would flicker."""
    columns = shutil.get_terminal_size().columns
    return [_HOME + f"{_END_OF_LINE}\n".join(line[:columns] for line in lines) + _END_OF_LINE + _END_OF_SCREEN]


def _once(open_feed: _OpenFeed, base: str, quote: str, display: Display) -> Iterator[tuple[Pair, MarketIndex]]:
    """Yield a pair, and an index with its book. Of a store or a service, no other book is read."""
    pair = exact_pair(base, quote)
    with suppress(PairNotFound), open_feed() as feed:
        if pair is not None and not feed.is_stream:
            feed.read_order_book(pair)
            assert feed.version is not None  # noqa: S101  # it was read
            yield pair, feed.version.index
            return
    with open_feed() as feed:
        index = feed.read()
    yield pair_of(base, quote, index, display), index


def _watched(open_feed: _OpenFeed, base: str, quote: str, display: Display) -> Iterator[tuple[Pair, MarketIndex]]:
    """Yield a pair, and each index of the source, until that ends."""
    interrupt_on_sigterm()
    pair, index = None, None
    with open_feed() as feed, closing(feed.versions()) as versions:
        for version in versions:
            _require_reader()
            if version.index is not index:
                index = version.index
                pair = pair or pair_of(base, quote, index, display)
                yield pair, index
        if feed.version is None:
            raise SystemExit(EXIT_FEED)  # the feed has logged its problem


def _require_reader() -> None:
    """End the command if the reader of a pipe has gone: without a change, nothing would be written."""
    poll = select.poll()
    poll.register(1, 0)
    if poll.poll(0):
        raise SystemExit(EXIT_ABSENT)
