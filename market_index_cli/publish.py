"""The command `market-index publish`, which publishes order books of a file or of standard input into a store."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import click

from market_index import Freshness, OrderBook, Pair
from market_index_cli.console import counted, loading_progress, log_plainly
from market_index_cli.errors import EXIT_FEED, EXIT_REJECTED, NoOrderBook, feed_errors
from market_index_cli.options import HISTORY, STORE, WAIT, AsOf
from market_index_feeds import (
    BookBatch,
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
  market-index publish market.db books.ndjson --replace --as-of "slot 145000000"
  market-index publish market.db --as-of "slot 145000020"
  producer | market-index publish market.db -
  indexer | market-index publish market.db orders:-

\b
Exit codes: 0 all was published, 1 it was interrupted, 2 wrong usage, {EXIT_FEED} BOOKS or STORE cannot be opened,
read or written, {EXIT_REJECTED} a line was rejected or not committed, the state of the orders is unknown, or BOOKS has
no order book for --replace or --as-of.""",
)
@STORE
@click.argument("books", metavar="[BOOKS]", required=False)
@click.option(
    "--replace",
    is_flag=True,
    help="Make BOOKS the whole content of STORE, in one change: all other pairs are retracted.",
)
@click.option(
    "--as-of",
    metavar="TEXT",
    type=AsOf(),
    help="What all books of STORE reflect once BOOKS is published, such as a slot or a time.",
)
@click.option(
    "--synchronous",
    default="full",
    show_default=True,
    type=click.Choice(["full", "normal"]),
    help="Acknowledged changes survive a power cut (full), or only a crash of programs (normal, which is faster).",
)
@HISTORY
@WAIT
def publish(
    target: str,
    books: str | None,
    *,
    replace: bool,
    as_of: str | None,
    synchronous: Any,
    history: int | None,
    wait: float,
) -> None:
    """Publish order books into STORE: those of BOOKS, a file with one per line, or - for standard input.

    If STORE does not exist, it is created. Lines are published as they arrive, each batch in one change. An invalid
    line is rejected, with its number and the reason, and does not affect the others. With --replace, the pair that it
    names is not changed; if it names none, no pair is retracted. If BOOKS has no order book, nothing is replaced.

    A commit line in BOOKS, {"as_of": "slot 145000000"}, publishes the books before it in one change. After the first
    one, books wait for the next commit line. If BOOKS contains events of orders (orders:events.ndjson, or orders:-),
    each block is one change, and the first block retracts all pairs that it does not name. Without BOOKS, a heartbeat
    is published into an existing STORE: it shows that the publisher is alive.
    """
    if books is not None:
        _require_lines(books)
    elif replace or history is not None:
        raise click.UsageError(f"{'--replace' if replace else '--history'} requires BOOKS")
    # SIGTERM acts like Ctrl-C, so that publish reports what it has published.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log_plainly()
    with feed_errors():
        stream = None if books is None else open_book_stream(books, history=history)
        with open_store(target, wait=wait, synchronous=synchronous, make=stream is not None) as store:
            if stream is None:
                receipt = store.update((), as_of=as_of)
                click.echo(f"{store.target}: heartbeat published, revision {receipt.revision}")
            else:
                _publish_stream(store, stream, as_of, replace=replace)


def _publish_stream(store: Store, stream: BookStream, as_of: str | None, *, replace: bool) -> None:
    rejected = _Rejections()
    try:
        (_replace if replace else _publish)(store, stream, rejected, as_of)
    finally:
        if rejected.count:
            click.echo(f"{stream.source}: {rejected}", err=True)
    if stream.uncommitted:
        uncommitted = counted(stream.uncommitted, stream.pending_record)
        click.echo(f"{stream.source}: {uncommitted} after the last {stream.commit} not published", err=True)
    if stream.problem:
        click.echo(f"{stream.source}: {stream.problem}", err=True)
    if rejected.hides_as_of:
        click.echo(f"{store.target}: as_of not recorded, because of what was rejected", err=True)
    elif rejected.too_large and rejected.has_as_of:
        click.echo(f"{store.target}: as_of not recorded while an older book of a rejected pair is stored", err=True)
    if rejected.count or rejected.too_large or stream.uncommitted or stream.problem:
        raise SystemExit(EXIT_REJECTED)


def _require_lines(books: str) -> None:
    if books.startswith("orders:"):
        return
    if "://" in books:
        raise click.UsageError("BOOKS must be a file with one order book per line, or - for standard input, got a URL")
    if books != "-" and is_sqlite(books):
        raise click.UsageError(
            f"BOOKS must be a file with one order book per line, or - for standard input, got a store: {books} "
            "(STORE comes first: market-index publish market.db books.ndjson)"
        )


class _Rejections:
    """The rejected lines: their count, the numbers of the first ones, and the pairs that they name (None for any)."""

    def __init__(self) -> None:
        self.count = self.too_large = 0
        self.has_as_of = self.hides_as_of = False
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

    def visible_as_of(self, as_of: str | None, *, is_current: bool) -> str | None:
        """Return the as_of; None if a book may be older than that because a newer one was rejected."""
        self.has_as_of = self.has_as_of or as_of is not None
        if is_current:
            return as_of
        self.hides_as_of = self.hides_as_of or as_of is not None
        return None

    def add(self, line: RejectedLine) -> None:
        """Record a line, without its text: there may be many, each of several megabytes."""
        self.count += 1
        self.pairs.add(line.pair)
        if len(self._numbers) < _MAX_NUMBERS:
            self._numbers.append(line.number)

    def __str__(self) -> str:
        more = f" and {self.count - len(self._numbers)} more" if self.count > len(self._numbers) else ""
        return f"{counted(self.count, 'line')} rejected: {', '.join(map(str, self._numbers))}{more}"


class _Publication:
    """Publishes batches into a store, and counts the changes."""

    def __init__(self, store: Store, rejected: _Rejections) -> None:
        self._store = store
        self._rejected = rejected
        self.books: int = 0
        self.retracted: int = 0
        self._revision = store.revision

    def add(
        self,
        books: list[OrderBook],
        as_of: str | None = None,
        freshness: Freshness | None = None,
        removed: Collection[Pair] = (),
        *,
        is_whole: bool = False,
    ) -> None:
        """Publish one batch in one change. If it is whole, all other pairs are retracted."""
        if is_whole:
            write = partial(self._store.replace, books, freshness=freshness)
        else:
            write = partial(self._store.update, books, removed, as_of, freshness=freshness)
        receipt = self._rejected.report_too_large(write)
        self.books += receipt.published
        self.retracted += receipt.retracted
        self._revision = receipt.revision

    def __str__(self) -> str:
        retracted = f", {counted(self.retracted, 'pair')} retracted" if self.retracted else ""
        books = counted(self.books, "order book")
        return f"{self._store.target}: {books} published{retracted}, revision {self._revision}"


def _publish(store: Store, stream: BookStream, rejected: _Rejections, as_of: str | None) -> None:
    publication, ended, is_whole = _Publication(store, rejected), False, stream.knows_all_pairs
    # The last batch of a file is published together with the as_of.
    last: list[OrderBook] = []
    try:
        for batch in _batches(stream, rejected, as_of):
            if batch.commit is not None:
                freshness = _freshness(batch.commit, rejected, is_current=stream.is_current)
                # The stored books may be those of another stream, or of an earlier run of the producer.
                publication.add(batch.books, freshness=freshness, removed=batch.removed, is_whole=is_whole)
                is_whole = False
            elif batch.books and as_of is not None and stream.size:
                if last:
                    publication.add(last)
                last = batch.books
            elif batch.books:
                publication.add(batch.books)
        if as_of is not None:
            _require_books(stream)
            publication.add(last, rejected.visible_as_of(as_of, is_current=stream.is_current))
        ended = True
    finally:
        if publication.books or publication.retracted or ended:
            click.echo(str(publication))


def _replace(store: Store, stream: BookStream, rejected: _Rejections, as_of: str | None) -> None:
    # In memory, because their as_of is known only at the end.
    books: dict[Pair, OrderBook] = {}
    commit, has_commit = Freshness(as_of), False
    for batch in _batches(stream, rejected, as_of):
        books.update((book.pair, book) for book in batch.books)
        for pair in batch.removed:
            del books[pair]
        commit, has_commit = batch.commit or commit, has_commit or batch.commit is not None
    _require_books(stream, has_commit=has_commit)
    # If a commit names all pairs, rejected lines name no other pair.
    hidden = set[Pair | None]() if stream.knows_all_pairs else rejected.pairs
    kept = 0

    def keep(pair: Pair) -> bool:
        nonlocal kept
        stays = None in hidden or pair in hidden
        kept += stays
        return stays

    # A kept pair has an older book.
    is_current = stream.is_current and hidden <= books.keys()
    freshness = _freshness(commit, rejected, is_current=is_current)
    receipt = rejected.report_too_large(lambda: store.replace(books.values(), keep, freshness=freshness))
    because = f", {kept} kept because of rejected lines" if kept else ""
    click.echo(
        f"{store.target}: {counted(stream.books, 'order book')}, of which {receipt.published} are new, "
        f"{counted(receipt.retracted, 'pair')} retracted{because}, revision {receipt.revision}"
    )


def _freshness(commit: Freshness, rejected: _Rejections, *, is_current: bool) -> Freshness:
    """Return the freshness to store: that of a commit line, by default with the wall clock of this machine."""
    as_of = rejected.visible_as_of(commit.as_of, is_current=is_current)
    return Freshness(as_of, commit.published_at or datetime.now(UTC))


def _require_books(stream: BookStream, *, has_commit: bool = False) -> None:
    # An empty state of the orders is valid.
    if not stream.books and not (has_commit and stream.knows_all_pairs):
        raise NoOrderBook(f"{stream.source} must contain an order book, got none: nothing was changed")


def _batches(stream: BookStream, rejected: _Rejections, as_of: str | None) -> Iterator[BookBatch]:
    """Yield the batches of a stream as they arrive, and show progress on a terminal."""
    with loading_progress(stream.source) as progress:
        for batch in stream.batches():
            if batch.commit is not None and as_of is not None:
                raise click.UsageError(
                    f"{stream.source} has a {stream.commit}, which sets the as_of of the books: omit --as-of"
                )
            for line in batch.rejected:
                rejected.add(line)
            yield batch
            progress(batch.offset, stream.size)
