"""The command `market-index publish`, which publishes order books of a file or of standard input into a store."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click
from attrs import define, field

from market_index import Freshness, Pair
from market_index_cli.console import counted, loading_progress
from market_index_cli.errors import EXIT_FEED, EXIT_REJECTED, NoOrderBook, feed_errors
from market_index_cli.logs import log_plainly
from market_index_cli.options import STORE, WAIT, AsOf
from market_index_feeds import BooksRejected, Feed, Receipt, Store, Update, is_sqlite, open_feed, open_store


@click.command(
    short_help="Publish order books into STORE.",
    epilog=f"""\b
Examples:
  market-index publish market.db books.ndjson
  market-index publish market.db books.ndjson --replace --as-of "slot 145000000"
  market-index publish market.db --as-of "slot 145000020"
  producer | market-index publish market.db -
  indexer | market-index publish market.db orders:-
  market-index publish market.db "replay:recording.ndjson?loop"

\b
Exit codes: 0 all was published, or a signal ended a loop, 1 it was interrupted, 2 wrong usage,
{EXIT_FEED} BOOKS or STORE cannot be opened, read or written, {EXIT_REJECTED} a line was rejected or not committed,
a book is too large, the state of the orders is unknown, or BOOKS has no order book for --replace or --as-of.""",
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
@WAIT
def publish(
    target: str,
    books: str | None,
    *,
    replace: bool,
    as_of: str | None,
    synchronous: Any,
    wait: float,
) -> None:
    """Publish order books into STORE: those of BOOKS, a file with one per line, or - for standard input.

    If STORE does not exist, it is created. A file is published in one change, and a stream as its lines arrive. An
    invalid line is rejected, with its number and the reason, and does not affect the others. With --replace, no pair is
    retracted then. If BOOKS has no order book, nothing is replaced.

    A commit line in BOOKS, {"as_of": "slot 145000000"}, publishes the books before it in one change. After the first
    one, books wait for the next commit line. A retract line, {"retract": true, "base": …, "quote": …}, retracts a pair.
    If BOOKS contains events of orders (orders:events.ndjson, or orders:-), the first block retracts all pairs that it
    does not name. Commits or blocks that arrive together are one change. If BOOKS is a recording to replay
    (replay:recording.ndjson), each change is published when it is due. Without BOOKS, a heartbeat is published into an
    existing STORE: it shows that the publisher is alive.
    """
    if books is not None:
        _require_lines(books)
    elif replace:
        raise click.UsageError("--replace requires BOOKS")
    # SIGTERM acts like Ctrl-C, so that publish reports what it has published.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log_plainly()
    with feed_errors():
        feed = None if books is None else open_feed(books, follow=False)
        is_endless = feed is not None and feed.is_endless
        if replace and is_endless:
            raise click.UsageError("--replace requires BOOKS with an end: omit the loop")
        with (
            # A loop has no other end.
            suppress(KeyboardInterrupt) if is_endless else nullcontext(),
            open_store(target, wait=wait, synchronous=synchronous, make=feed is not None) as store,
        ):
            if feed is None:
                receipt = store.update((), as_of=as_of)
                click.echo(f"{store.target}: heartbeat published, revision {receipt.revision}")
            else:
                _publish_all(_Publication(store, feed, as_of), replace=replace)


def _require_lines(books: str) -> None:
    if books.startswith(("orders:", "replay:", "sample:")):
        return
    if "://" in books:
        raise click.UsageError("BOOKS must be a file with one order book per line, or - for standard input, got a URL")
    if books != "-" and is_sqlite(books):
        raise click.UsageError(
            f"BOOKS must be a file with one order book per line, or - for standard input, got a store: {books} "
            "(STORE comes first: market-index publish market.db books.ndjson)"
        )


@define
class _Publication:
    """The books of a feed that are published into a store, and what the summary says of it."""

    store: Store
    feed: Feed
    as_of: str | None
    published: int = 0
    retracted: int = 0
    changes: int = 0
    pairs: set[Pair] = field(factory=set)
    rejected_lines: int = 0
    rejected_books: int = 0
    has_as_of: bool = False
    hides_as_of: bool = False
    unknown: str | None = None

    def updates(self) -> Iterator[Update]:
        """Yield the updates of the feed as they arrive, show progress on a terminal, and count rejected lines."""
        with loading_progress(self.feed.source) as progress:
            for update in self.feed.updates(progress):
                if update.is_loading:
                    self.rejected_lines += len(update.rejected)
                else:
                    self.unknown = update.unknown
                    yield update

    def freshness(self, given: Freshness | None) -> Freshness:
        """Return the freshness to store: the given one, by default with the wall clock; no as_of if it may be wrong."""
        if given is not None and self.as_of is not None:
            raise click.UsageError(f"{self.feed.source} sets the as_of of its books: omit --as-of")
        as_of = self.as_of if given is None else given.as_of
        self.has_as_of = as_of is not None
        self.hides_as_of = self.has_as_of and bool(self.feed.content.coverage.invalid)
        as_of = None if self.hides_as_of else as_of
        published_at = None if given is None else given.published_at
        return Freshness(as_of, published_at or datetime.now(UTC))

    def write(self, write: Callable[[], Receipt]) -> Receipt:
        """Write, print which books were not accepted, and return the receipt."""
        try:
            receipt = write()
        except BooksRejected as error:
            receipt = error.receipt
            self.rejected_books += len(error.pairs)
            click.echo(str(error), err=True)
        self.published += receipt.published
        self.retracted += receipt.retracted
        self.changes += bool(receipt.published)
        self.pairs.update(receipt.pairs)
        return receipt

    @property
    def summary(self) -> str:
        """What was published and retracted: the books, and if a pair got several of them, also pairs and changes."""
        books, pairs = counted(self.published, "order book"), counted(len(self.pairs), "pair")
        published = f"{books} published"
        if self.published > len(self.pairs):
            published = f"{books} of {pairs} published in {counted(self.changes, 'change')}"
        return f"{published}, {counted(self.retracted, 'pair')} retracted" if self.retracted else published


def _publish_all(publication: _Publication, *, replace: bool) -> None:
    feed = publication.feed
    try:
        (_replace if replace else _publish)(publication)
    finally:
        if publication.rejected_lines:
            click.echo(f"{feed.source}: {counted(publication.rejected_lines, 'line')} rejected", err=True)
    if publication.hides_as_of:
        click.echo(f"{publication.store.target}: as_of not recorded, because of what was rejected", err=True)
    elif publication.has_as_of and publication.rejected_books:
        click.echo(
            f"{publication.store.target}: as_of not recorded while an older book of a rejected pair is stored", err=True
        )
    if publication.rejected_lines or publication.rejected_books or publication.unknown is not None:
        raise SystemExit(EXIT_REJECTED)


def _publish(publication: _Publication) -> None:
    store, feed = publication.store, publication.feed
    receipt, named_all, ended = Receipt(store.revision), False, False
    try:
        for update in publication.updates():
            freshness, is_last = None, publication.as_of is not None and not update.has_more
            if is_last:
                _require_books(feed, or_retraction=True)
            if is_last or update.freshness is not None:
                freshness = publication.freshness(update.freshness)
            if feed.content.coverage.names_all_pairs and not named_all:
                # The stored books may be those of another stream, or of an earlier run of the producer.
                named_all = True
                write = partial(store.replace, feed.content.index.values())
            elif update.books or update.removed or freshness is not None:
                write = partial(store.update, update.books, update.removed)
            else:
                continue
            receipt = publication.write(partial(write, freshness=freshness))
        ended = True
    finally:
        if ended or publication.published or publication.retracted:
            click.echo(f"{store.target}: {publication.summary}, revision {receipt.revision}")


def _replace(publication: _Publication) -> None:
    store, feed = publication.store, publication.feed
    given: Freshness | None = None
    for update in publication.updates():
        given = given if update.freshness is None else update.freshness
    _require_books(feed)
    content = feed.content
    retract = content.coverage.retracted if content.coverage.invalid else None
    freshness = publication.freshness(given)
    receipt = publication.write(lambda: store.replace(content.index.values(), retract, freshness=freshness))
    kept = f", {len(receipt.kept)} kept because of rejected lines" if receipt.kept else ""
    click.echo(
        f"{store.target}: {counted(feed.books, 'order book')}, of which {receipt.published} are new, "
        f"{counted(receipt.retracted, 'pair')} retracted{kept}, revision {receipt.revision}"
    )


def _require_books(feed: Feed, *, or_retraction: bool = False) -> None:
    coverage = feed.content.coverage
    # An empty state of the orders is valid.
    if not feed.books and not coverage.is_complete and not (or_retraction and coverage.retracted):
        raise NoOrderBook(f"{feed.source} must contain an order book, got none: nothing was changed")
