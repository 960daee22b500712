"""The command `market-index publish`, which publishes order books of a file or of standard input into a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from functools import cache, partial
from pathlib import Path
from threading import Event
from typing import Any

import click
from attrs import define, field

from market_index import Freshness, OrderBook
from market_index_cli import options
from market_index_cli.console import counted, interrupt_on_sigterm
from market_index_cli.errors import EXIT_FEED, EXIT_REJECTED, Failed, feed_errors
from market_index_cli.logs import log_plainly
from market_index_feeds import BookLines, Change, Feed, FeedError, HealthState, Receipt, Store, mirror, open_store
from market_index_feeds.errors import reason_of
from market_index_feeds.sources import Contents, kind_of


@click.command
@options.STORE
@click.argument("books", metavar="[BOOKS]", required=False)
@click.option(
    "--replace",
    is_flag=True,
    help="Make BOOKS the whole content of STORE, in one change: all other pairs are retracted.",
)
@click.option(
    "--as-of",
    metavar="TEXT",
    type=options.converted(Freshness),
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
@options.WAIT
@options.HEADERS
def publish(
    target: str,
    books: str | None,
    *,
    replace: bool,
    as_of: Freshness | None,
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
        report = _Report(kind_of(target).shown(target), acknowledge)
        if books is None:
            with open_target() as store:
                report.add(store, store.update((), freshness=as_of))
                report.show("heartbeat published")
        elif contents is Contents.STATES:
            _mirror(options.opened(books, headers, follow=False), open_target, report)
        else:
            with ExitStack() as stack:
                opened_target = cache(lambda: stack.enter_context(open_target()))
                _Lines(BookLines(books, is_stream=True), opened_target, as_of, replace, report).publish()


@define
class _Report:
    """What was published so far into the store with this name.

    If it `acknowledges`, each change is a line of JSON on standard output, which has nothing else.
    """

    name: str
    acknowledges: bool
    published: int = 0
    retracted: int = 0
    revision: str = ""

    def add(self, _: Store, receipt: Receipt) -> None:
        """Add a change."""
        number = receipt.position.number
        self.revision = f", revision {number}"
        self.published += receipt.published
        self.retracted += receipt.retracted
        if self.acknowledges:
            click.echo(json.dumps({"as_of": receipt.freshness.as_of, "revision": number}))

    def show(self, what: str | None = None) -> None:
        """Print what was published, or else the number of books and pairs."""
        retracted = f", {counted(self.retracted, 'pair')} retracted" if self.retracted else ""
        what = what or f"{counted(self.published, 'order book')} published{retracted}"
        click.echo(f"{self.name}: {what}{self.revision}", err=self.acknowledges)


def _mirror(source: Feed, open_target: Callable[[], Store], report: _Report) -> None:
    """Make a store equal to each version of a feed until that ends, and report it."""
    with source as feed:
        try:
            left_out = mirror(feed, open_target, on_written=report.add)
        finally:
            report.show()
        # The feed has logged a problem.
        if feed.version is None or feed.health.state is not HealthState.ENDED or left_out or feed.health.rejected:
            raise SystemExit(EXIT_REJECTED)


@define
class _Lines:
    """The lines of order books that are published into a store. `store` opens it at its first call."""

    lines: BookLines
    store: Callable[[], Store]
    as_of: Freshness | None
    replaces: bool
    report: _Report
    so_far: Change = field(factory=Change)
    has_left_out: bool = False
    is_withheld: bool = False
    """Whether the last as_of was not stored, because it may not be true of all books."""

    def publish(self) -> None:
        """Publish the lines, and report what was published and what was not."""
        lines = self.lines
        try:
            self._publish()
        except (FeedError, OSError) as error:
            raise Failed(EXIT_FEED, f"{lines.name} cannot be read: {reason_of(error)}") from None
        finally:
            self.report.show()
            if lines.rejected:
                click.echo(f"{lines.name}: {counted(lines.rejected, 'record')} rejected", err=True)
        if lines.uncommitted:
            click.echo(
                f"{lines.name} ended while lines waited for a commit line (pairs: {lines.uncommitted})", err=True
            )
        if self.is_withheld:
            click.echo(f"{self.report.name}: as_of not recorded, because of what was rejected", err=True)
        if lines.rejected or lines.uncommitted or self.has_left_out:
            raise SystemExit(EXIT_REJECTED)

    def _publish(self) -> None:
        with closing(self.lines.changes(Event())) as changes:
            for change in changes:
                if change.freshness is not None and self.as_of is not None:
                    raise click.UsageError(f"{self.lines.name} sets the as_of of its books: omit --as-of")
                self.so_far.add(change)
                if self.replaces:
                    continue
                if change.is_end and self.as_of is not None:
                    self._require(self.so_far.books, "contain an order book, got none")
                    change.freshness = self.as_of
                if change.books or change.freshness is not None:
                    update = partial(self.store().update, retract=change.retracted)
                    self._write(update, change.published, change.freshness)
        if self.replaces:
            self._require(not self.lines.rejected, "have no invalid line to replace a store")
            self._require(self.so_far.published, "contain an order book, got none")
            self._write(self.store().replace, self.so_far.published, self.as_of or self.so_far.freshness)

    def _write(self, write: Callable[..., Receipt], books: Collection[OrderBook], freshness: Freshness | None) -> None:
        """Write books, but leave out those above a limit of the store, and an as_of that may not be true then."""
        is_known = not (self.so_far.invalid or self.has_left_out)
        known = freshness if is_known or freshness is None else freshness.without_as_of()
        receipt = write(books, freshness=known, leave_out=True)
        self.has_left_out |= bool(receipt.left_out)
        self.is_withheld = bool(freshness and freshness.as_of and receipt.freshness.as_of is None)
        self.report.add(self.store(), receipt)

    def _require(self, holds: object, rule: str) -> None:
        if not holds:
            raise Failed(EXIT_REJECTED, f"{self.lines.name} must {rule}: nothing was changed")
