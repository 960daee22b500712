"""The command `market-index dump`, which writes the content of a feed as lines."""

from __future__ import annotations

from pathlib import Path

import click

from market_index import wire
from market_index.wire import freshness_to_json
from market_index_cli import options
from market_index_cli.errors import EXIT_REJECTED, feed_errors
from market_index_cli.logs import log_plainly


@click.command
@options.FEED
@options.HEADERS
def dump(source: str, *, headers: Path | None) -> None:
    """Write the content of FEED as lines.

    The order books of FEED are written to standard output, one per line, in ledger order, and then a commit line. The
    commit line has what the books reflect and when they were published, as far as that is known. The output is a
    FEED, and can be published into a store.

    \b
    Examples:
      market-index dump market.db > books.ndjson
      market-index dump http://127.0.0.1:8000 | market-index publish market.db -
    """
    log_plainly()
    with feed_errors(), options.opened(source, headers) as feed:
        index = feed.read()
    for book in index.values():
        click.echo(wire.order_book_to_json(book))
    click.echo(freshness_to_json(index.freshness))
    if feed.health.rejected or feed.health.problem is not None:
        raise SystemExit(EXIT_REJECTED)
