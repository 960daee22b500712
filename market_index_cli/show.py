"""The commands `market-index pairs` and `market-index book`, which print the content of a feed."""

from __future__ import annotations

import errno
import os
import select
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TypeAlias

import click

from market_index import MarketIndex, OrderBook, Pair, PairNotFound, wire
from market_index.errors import safe_repr
from market_index_cli import terminal
from market_index_cli.console import interrupt_on_sigterm, loading
from market_index_cli.errors import EXIT_ABSENT, EXIT_FEED, EXIT_REJECTED, Failed, feed_errors
from market_index_cli.logs import log_plainly
from market_index_cli.names import containing, exact_pair, pair_of
from market_index_cli.options import BASE, FEED, HEADERS, JSON, QUOTE, TOKENS, opened
from market_index_cli.tokens import NO_VALUE, Display, display_of
from market_index_feeds import Feed

_TERMINAL_DEPTH: Final = 15
"""The default number of levels per side on a terminal."""

_FIXED_LINES: Final = 13
"""The most lines of a book on a terminal beside its levels, and the one of the cursor."""

_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"

_OpenSource: TypeAlias = Callable[[], Feed]


@click.command
@FEED
@click.option(
    "--filter", "text", default="", metavar="TEXT", help="List only pairs with TEXT in an identifier or a name."
)
@HEADERS
@TOKENS
@JSON
def pairs(source: str, *, text: str, headers: Path | None, tokens: Path | None, as_json: bool) -> None:
    """List the pairs of FEED.

    A pair has spot, best bid, best ask, spread, the number of levels, and the assets. On a terminal, it also prints
    what the books reflect and when they were published, if FEED contains that.

    The minter of an asset chooses its name: only the identifier is unique. In a pipe, tabs separate the columns.
    """
    log_plainly()
    display = display_of(source, tokens, headers, is_exact=not sys.stdout.isatty())
    with feed_errors(), opened(source, headers) as feed:
        index = containing(text, _read(feed), display)
    if text and not index:
        raise Failed(EXIT_ABSENT, f"no pair matches {safe_repr(text)}")
    if as_json:
        click.echo(wire.pair_list_to_json(index.pair_list()))
    elif sys.stdout.isatty():
        _print([*terminal.pair_table(index.values(), display, _columns()), *terminal.freshness_lines(index.freshness)])
    else:
        _print(map("\t".join, terminal.pair_rows(index.values(), display)))
    if feed.health.rejected:
        raise SystemExit(EXIT_REJECTED)


@click.command
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
    "--watch", is_flag=True, help="Show the book again whenever it changes, until a signal or the end of FEED."
)
@HEADERS
@TOKENS
@JSON
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
    is_terminal = sys.stdout.isatty() and not as_json
    display = display_of(source, tokens, headers, is_exact=not sys.stdout.isatty())
    before, separator = list[str](), list[str]()
    with feed_errors(), suppress(KeyboardInterrupt) if watch else nullcontext():
        for pair, index in (_watched if watch else _once)(partial(opened, source, headers), base, quote, display):
            found = index.get(pair)
            if watch and is_terminal and depth is None:
                most = max((shutil.get_terminal_size().lines - _FIXED_LINES) // 2, 1)
                lines = [] if found is None else _lines(found, min(most, _TERMINAL_DEPTH), display, as_json=False)
            else:
                lines = [] if found is None else _lines(found, depth, display, as_json=as_json)
            if lines == before:
                continue
            before = lines
            if found is None:
                click.echo(f"Pair {pair} not found", err=True)
            elif is_terminal:
                shown = [*lines, *terminal.freshness_lines(index.freshness)]
                # Each line replaces the one before it: to clear the screen first would flicker.
                _print([f"{_HOME}{f'{_END_OF_LINE}{chr(10)}'.join(shown)}{_END_OF_SCREEN}"] if watch else shown)
            elif watch and not as_json:
                _print([*separator, f"as_of\t{index.as_of or NO_VALUE}", *lines])
                separator = [""]
            else:
                _print(lines)


def _lines(found: OrderBook, depth: int | None, display: Display, *, as_json: bool) -> list[str]:
    """Return the lines of a book, as JSON or for standard output."""
    cut = found if depth is None else found.depth(depth)
    if as_json:
        return [wire.order_book_to_json(cut).decode()]
    if not sys.stdout.isatty():
        return [*map("\t".join, terminal.ladder_rows(cut, display))]
    return [*terminal.ladder(found, _TERMINAL_DEPTH if depth is None else depth, display, _columns())]


def _once(open_source: _OpenSource, base: str, quote: str, display: Display) -> Iterator[tuple[Pair, MarketIndex]]:
    """Yield a pair, and an index with its book. Of a store or a service, no other book is read."""
    pair = exact_pair(base, quote)
    with suppress(PairNotFound), open_source() as feed:
        if pair is not None and not feed.is_stream:
            feed.read_order_book(pair)
            assert feed.version is not None  # noqa: S101  # it was read
            yield pair, feed.version.index
            return
    with open_source() as feed:
        index = _read(feed)
    yield pair_of(base, quote, index, display), index


def _read(feed: Feed) -> MarketIndex:
    with loading(feed.name) as progress:
        return feed.read(progress)


def _watched(open_source: _OpenSource, base: str, quote: str, display: Display) -> Iterator[tuple[Pair, MarketIndex]]:
    """Yield a pair, and each index of the source, until that ends."""
    interrupt_on_sigterm()
    pair, index = None, None
    with open_source() as feed, closing(feed.versions()) as versions:
        for version in versions:
            _require_reader()
            if version.index is not index:
                index = version.index
                pair = pair or pair_of(base, quote, index, display)
                yield pair, index
        if feed.version is None:
            raise SystemExit(EXIT_FEED)  # the feed has logged its problem


def _require_reader() -> None:
    """Raise `BrokenPipeError` if the reader of a pipe has gone: without a change, nothing would be written."""
    poll = select.poll()
    poll.register(1, 0)
    if poll.poll(0):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _print(lines: Iterable[str]) -> None:
    """Print lines: without colour in a pipe or with NO_COLOR (https://no-color.org)."""
    if isinstance(sys.stdout, TextIOWrapper):
        # A name or a bar may have a character that the encoding of the terminal lacks.
        sys.stdout.reconfigure(errors="replace")
    for line in lines:
        click.echo(line, color=False if os.environ.get("NO_COLOR") else None)
