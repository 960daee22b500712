"""`market-index publish`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import click

from market_index import OrderBook, Pair
from market_index_cli.console import counted, loading_progress, log_plainly
from market_index_cli.errors import EXIT_FEED, EXIT_REJECTED, NothingToReplaceBy, feed_errors
from market_index_cli.options import STORE, WAIT
from market_index_feeds import (
    BookStream,
    BookTooLarge,
    Receipt,
    RejectedLine,
    Store,
    is_sqlite,
    open_book_stream,
    open_store,
)

_MAX_NUMBERS: Final = 20
"""How many rejected lines a summary names by their numbers."""


@click.command(
    short_help="Publish order books into STORE.",
    epilog=f"""\b
Examples:
  market-index publish market.db books.ndjson
  producer | market-index publish market.db -

\b
Exit codes: 0 all was published, 1 it was interrupted, 2 wrong usage, {EXIT_FEED} BOOKS or STORE cannot be opened,
read or written, {EXIT_REJECTED} a line was rejected, or there was no order book to replace all others by.""",
)
@STORE
@click.argument("books", metavar="BOOKS")
@click.option(
    "--replace",
    is_flag=True,
    help="Make BOOKS the whole of STORE, in one change: what it does not name is retracted.",
)
@click.option(
    "--synchronous",
    default="full",
    show_default=True,
    type=click.Choice(["full", "normal"]),
    help="What was published survives: a power cut (full), or a crash of programs alone (normal, and faster).",
)
@WAIT
def publish(target: str, books: str, *, replace: bool, synchronous: Any, wait: float) -> None:
    """Publish order books into STORE: those of BOOKS, a file with one per line, or - for standard input.

    If STORE does not exist, it is created. Lines are published as they come, each batch in one change. An invalid line
    is rejected, with its number and the reason, and does not affect the others: with --replace the pair that it names
    stays as it is, and if it names none, no pair is retracted. If BOOKS has no order book, nothing is replaced.
    """
    _require_lines(books)
    # As Ctrl-C does: publish reports what it has published.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log_plainly()
    rejected = _Rejected()
    with feed_errors():
        stream = open_book_stream(books)
        with open_store(target, wait=wait, synchronous=synchronous) as store:
            try:
                (_replace if replace else _publish)(store, stream, rejected)
            finally:
                if rejected.count:
                    click.echo(f"{stream.source}: {rejected}", err=True)
    if rejected.count or rejected.too_large:
        raise SystemExit(EXIT_REJECTED)


def _require_lines(books: str) -> None:
    if "://" in books:
        raise click.UsageError("BOOKS is a file of order books, one a line, or - for standard input, but no URL")
    if books != "-" and is_sqlite(books):
        raise click.UsageError(
            f"BOOKS is a file of order books, one a line, or - for standard input; {books} is a store"
        )


class _Rejected:
    """The rejected lines: their count, the first of their numbers, and the pairs that they name (None for any)."""

    def __init__(self) -> None:
        self.count = self.too_large = 0
        self.pairs: set[Pair | None] = set()
        self._numbers: list[int] = []

    def report_too_large(self, publish: Callable[[], Receipt]) -> Receipt:
        """Publish, print which books were too large, and return the receipt."""
        try:
            return publish()
        except BookTooLarge as error:
            self.too_large += len(error.pairs)
            click.echo(str(error), err=True)
            return error.receipt

    def add(self, line: RejectedLine) -> None:
        """Record a line, without its text: there may be many, each of several megabytes."""
        self.count += 1
        self.pairs.add(line.pair)
        if len(self._numbers) < _MAX_NUMBERS:
            self._numbers.append(line.number)

    def __str__(self) -> str:
        more = f" and {self.count - len(self._numbers)} more" if self.count > len(self._numbers) else ""
        return f"{counted(self.count, 'line')} rejected: {', '.join(map(str, self._numbers))}{more}"


def _publish(store: Store, stream: BookStream, rejected: _Rejected) -> None:
    published, revision, ended = 0, store.revision, False
    try:
        for books in _batches(stream, rejected):
            too_large = rejected.too_large
            revision = rejected.report_too_large(partial(store.publish, *books)).revision
            published += len(books) - (rejected.too_large - too_large)
        ended = True
    finally:
        if published or ended:
            click.echo(f"{store.target}: {counted(published, 'order book')} published, revision {revision}")


def _replace(store: Store, stream: BookStream, rejected: _Rejected) -> None:
    kept = 0

    def books() -> Iterator[OrderBook]:
        for batch in _batches(stream, rejected):
            yield from batch
        if not stream.books:
            raise NothingToReplaceBy(f"{stream.source} holds no order book: nothing was changed")

    def keep(pair: Pair) -> bool:
        nonlocal kept
        stays = None in rejected.pairs or pair in rejected.pairs
        kept += stays
        return stays

    receipt = rejected.report_too_large(lambda: store.replace(books(), keep))
    because = f", {kept} kept because of rejected lines" if kept else ""
    click.echo(
        f"{store.target}: {counted(stream.books, 'order book')}, of which {receipt.published} are new, "
        f"{counted(receipt.retracted, 'pair')} retracted{because}, revision {receipt.revision}"
    )


def _batches(stream: BookStream, rejected: _Rejected) -> Iterator[list[OrderBook]]:
    """Yield the books of a stream as they come, and show on a terminal how much was read."""
    with loading_progress(stream.source) as progress:
        for batch in stream.batches():
            for line in batch.rejected:
                rejected.add(line)
            if batch.books:
                yield batch.books
            progress(batch.offset, stream.size)
