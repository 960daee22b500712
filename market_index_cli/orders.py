"""The command `market-index orders`, which lists the orders behind the books of a feed, with their venues."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import click

from market_index import Pair
from market_index_cli.console import loading
from market_index_cli.errors import EXIT_FEED, Failed, feed_errors
from market_index_cli.logs import log_plainly
from market_index_cli.names import pair_of
from market_index_cli.options import FEED, HEADERS, TOKENS, opened
from market_index_cli.tokens import Display, tokens_of
from market_index_feeds import VenueOrder


@click.command
@FEED
@click.argument("base", metavar="[BASE", required=False)
@click.argument("quote", metavar="QUOTE]", required=False)
@click.option("--skipped", is_flag=True, help="List the outputs that are no orders instead, each with the reason.")
@HEADERS
@TOKENS
def orders(
    source: str, base: str | None, quote: str | None, *, skipped: bool, headers: Path | None, tokens: Path | None
) -> None:
    """List the orders of FEED, with their venues.

    The orders behind the books of FEED, or of one book, are sorted by pair, side and price. Each is one line, with tabs
    between its id, venue, base, quote, side, price as its ratio, amount, expiry in UTC, and the fee of the venue, which
    is not part of the price. A hyphen is what FEED does not know.

    Assets are identifiers, and amounts are in smallest units: here, --tokens only adds names for BASE and QUOTE.

    \b
    Example:
      market-index orders kupo:http://127.0.0.1:1442 SNEK ADA
    """
    if base is not None and quote is None:
        raise click.UsageError("BASE and QUOTE are given together")
    if skipped and base is not None:
        raise click.UsageError("--skipped lists the outputs of all pairs: leave out BASE and QUOTE")
    log_plainly()
    display = Display(tokens_of(source, tokens))
    with feed_errors(), opened(source, headers) as feed, loading(feed.source) as progress:
        index = feed.read(progress)
    if feed.orders is None:
        raise Failed(EXIT_FEED, f"{feed.source} has books, but not the orders behind them")
    if skipped:
        rows = [f"{key}\t{reason}" for key, reason in sorted(feed.skipped.items())]
    else:
        found = feed.venue_orders
        if found is None:
            found = {key: VenueOrder(order, venue="-", fee="-") for key, order in feed.orders.items()}
        if base is not None and quote is not None:
            pair = pair_of(base, quote, index, display)
            found = {key: one for key, one in found.items() if one.order.pair == pair}
        rows = [_row(key, one) for key, one in sorted(found.items(), key=_rank)]
    for row in rows:
        click.echo(row)


def _rank(item: tuple[str, VenueOrder]) -> tuple[Pair, str, Decimal | Fraction, str]:
    order_id, one = item
    return one.order.pair, one.order.side.value, one.order.price, order_id


def _row(order_id: str, one: VenueOrder) -> str:
    order = one.order
    price = "/".join(map(str, order.price.as_integer_ratio()))
    expiry = "-" if one.expires_at is None else one.expires_at.isoformat().replace("+00:00", "Z")
    parts = (order_id, one.venue, order.pair.base, order.pair.quote, order.side.value, price, order.amount)
    return "\t".join(map(str, (*parts, expiry, one.fee)))
