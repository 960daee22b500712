"""The command `market-index publish`, which publishes order books of a file or of standard input into a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from threading import Event
from typing import Any

import click
from attrs import define, field

from market_index import Freshness, OrderBook, Pair
from market_index_cli.console import counted, interrupt_on_sigterm, loading
from market_index_cli.errors import EXIT_FEED, EXIT_REJECTED, Failed, feed_errors
from market_index_cli.logs import log_plainly
from market_index_cli.options import HEADERS, STORE, WAIT, converted, opened
from market_index_feeds import (
    BookLines,
    Change,
    Feed,
    FeedError,
    HealthState,
    Receipt,
    Store,
    mirror,
    open_store,
)
from market_index_feeds.errors import reason_of
from market_index_feeds.sources import Contents, kind_of


@click.command
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
    type=converted(lambda text: Freshness(text).as_of),
    help="What all books of STORE reflect once BOOKS is published, such as a slot or a time.",
)
@click.option(
    "--synchronous",
    default="full",
    show_default=True,
    type=click.Choice(["full", "normal"]),
    help="Acknowledged changes survive a power cut (full), or only a crash of programs (normal, which is faster).",
)
@click.option(
    "--acknowledge",
    is_flag=True,
    help='Print a line {"as_of": …, "revision": …} on standard output for each durable change, and all else on '
    "standard error.",
)
@WAIT
@HEADERS
def publish(
    target: str,
    books: str | None,
    *,
    replace: bool,
    as_of: str | None,
    synchronous: Any,
    acknowledge: bool,
    wait: float,
    headers: Path | None,
) -> None:
    """Publish order books into STORE.

    BOOKS is a file with one order book per line, or - for standard input. If STORE does not exist, its first change
    creates it. A file is published in one change, and a stream as its lines arrive. Each book replaces that of its
    pair, a retract line, {"retract": true, "base": …, "quote": …}, removes its pair, and no other pair changes. An
    invalid line is rejected, with its number and the reason, and does not affect the others. But with --replace,
    nothing is changed then, nor if BOOKS has no order book.

    A commit line in BOOKS, {"as_of": "slot 145000000"}, publishes the lines before it in one change. After the first
    one, lines wait for the next commit line.

    Events of orders (orders:events.ndjson, or orders:-) and recordings (replay:recording.ndjson) are the whole content
    of STORE, at each block, and whenever a change is due. Blocks that arrive together are one change.

    With --acknowledge, a producer knows what is stored: it reads a line of JSON for each change. Lines that arrive
    together are one change.

    Without BOOKS, a heartbeat is published into an existing STORE: it shows that the publisher is alive.

    \b
    Examples:
      market-index publish market.db books.ndjson
      market-index publish market.db books.ndjson --replace --as-of "slot 145000000"
      market-index publish market.db --as-of "slot 145000020"
      producer | market-index publish market.db -
      indexer | market-index publish market.db orders:-
      market-index publish market.db "replay:recording.ndjson?loop"
    """
    with feed_errors():
        contents = None if books is None else kind_of(books).contents
    if replace and contents is not Contents.CHANGES:
        raise click.UsageError("--replace requires BOOKS, a file with one order book per line, or -")
    if contents is Contents.COPY:
        raise click.UsageError(
            "BOOKS must be a file with one order book per line, or -, got a store or a service "
            "(market-index relay follows it)"
        )
    if as_of is not None and contents is Contents.STATES:
        raise click.UsageError(f"{books} sets the as_of of its books: omit --as-of")
    interrupt_on_sigterm()  # so that publish reports what it has published
    log_plainly()
    open_target = partial(open_store, target, wait=wait, synchronous=synchronous, create=books is not None)
    with feed_errors():
        if books is None:
            with open_target() as store:
                summary = _Summary(store.name, acknowledge)
                summary.add(store, store.update((), freshness=None if as_of is None else Freshness(as_of)))
                summary.show("heartbeat published")
        elif contents is Contents.STATES:
            feed = opened(books, headers, follow=False)
            _mirror(feed, open_target, _Summary(feed.name, acknowledge))
        else:
            with ExitStack() as stack:
                store_of_lines = cache(lambda: stack.enter_context(open_target()))
                lines = BookLines(books, is_stream=True)
                _Lines(lines, store_of_lines, as_of, replace, _Summary(lines.name, acknowledge)).publish()


@define
class _Summary:
    """What was published so far. `name` is that of the source, and after the first change that of the store.

    If it `acknowledges`, each change is a line of JSON on standard output, which has nothing else.
    """

    name: str
    acknowledges: bool
    published: int = 0
    retracted: int = 0
    revision: int | None = None

    def add(self, target: Store, receipt: Receipt) -> None:
        """Add a change."""
        self.name, self.revision = target.name, receipt.position.number
        self.published += receipt.published
        self.retracted += receipt.retracted
        if self.acknowledges:
            click.echo(json.dumps({"as_of": receipt.freshness.as_of, "revision": self.revision}))

    def show(self, what: str | None = None) -> None:
        """Print what was published, or else the number of books and pairs."""
        if what is None:
            retracted = f", {counted(self.retracted, 'pair')} retracted" if self.retracted else ""
            what = f"{counted(self.published, 'order book')} published{retracted}"
        revision = "" if self.revision is None else f", revision {self.revision}"
        click.echo(f"{self.name}: {what}{revision}", err=self.acknowledges)


def _mirror(source: Feed, open_target: Callable[[], Store], summary: _Summary) -> None:
    """Make a store equal to each version of a feed until that ends, and report it."""
    with (
        source as feed,
        # A loop has no other end.
        suppress(KeyboardInterrupt) if feed.is_endless else nullcontext(),
        loading(feed.name) as progress,
    ):
        try:
            left_out = mirror(feed, open_target, progress=progress, on_written=summary.add)
        finally:
            if summary.revision is not None:
                summary.show()
        # The feed has logged a problem.
        health = feed.health
        if feed.version is None or health.state is not HealthState.ENDED or left_out or health.rejected:
            raise SystemExit(EXIT_REJECTED)


@define
class _Lines:
    """The lines of order books that are published into a store. `store` opens it at its first call."""

    lines: BookLines
    store: Callable[[], Store]
    as_of: str | None
    replaces: bool
    summary: _Summary
    so_far: Change = field(factory=Change)
    left_out: set[Pair] = field(factory=set)
    hides_as_of: bool = False

    def publish(self) -> None:
        """Publish the lines, and report what was published and what was not."""
        lines, has_ended = self.lines, False
        try:
            self._publish()
            has_ended = True
        except (FeedError, OSError) as error:
            raise Failed(EXIT_FEED, f"{lines.name} cannot be read: {reason_of(error)}") from None
        finally:
            if has_ended or self.summary.revision is not None:
                self.summary.show()
            if lines.rejected:
                click.echo(f"{lines.name}: {counted(lines.rejected, 'record')} rejected", err=True)
        if lines.uncommitted:
            click.echo(
                f"{lines.name} ended while lines waited for a commit line (pairs: {lines.uncommitted})", err=True
            )
        if self.hides_as_of:
            click.echo(f"{self.summary.name}: as_of not recorded, because of what was rejected", err=True)
        if lines.rejected or lines.uncommitted or self.left_out:
            raise SystemExit(EXIT_REJECTED)

    def _publish(self) -> None:
        given = None if self.as_of is None else Freshness(self.as_of)
        with loading(self.lines.name) as progress, closing(self.lines.changes(Event(), progress)) as changes:
            for change in changes:
                if change.freshness is not None and given is not None:
                    raise click.UsageError(f"{self.lines.name} sets the as_of of its books: omit --as-of")
                self.so_far.add(change)
                if not self.replaces:
                    if change.is_end and given is not None:
                        self._require(self.so_far.books, "contain an order book, got none")
                        change.freshness = given
                    if change.books or change.freshness is not None:
                        update = partial(self.store().update, retract=change.retracted)
                        self._write(update, change.published, change.freshness)
        if self.replaces:
            self._require(not self.lines.rejected, "have no invalid line to replace a store")
            self._require(self.so_far.published, "contain an order book, got none")
            self._write(self.store().replace, self.so_far.published, given or self.so_far.freshness)

    def _write(self, write: Callable[..., Receipt], books: Collection[OrderBook], freshness: Freshness | None) -> None:
        """Write books, but leave out those above a limit of the store, and an as_of that may not be true then."""
        is_known = not (self.so_far.invalid or self.left_out)
        known = freshness if is_known or freshness is None else freshness.without_as_of()
        receipt = write(books, freshness=known, leave_out=True)
        self.left_out.update(book.pair for book in receipt.left_out)
        self.hides_as_of = bool(freshness and freshness.as_of and receipt.freshness.as_of is None)
        self.summary.add(self.store(), receipt)

    def _require(self, holds: object, rule: str) -> None:
        if not holds:
            raise Failed(EXIT_REJECTED, f"{self.lines.name} must {rule}: nothing was changed")
