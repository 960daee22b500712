"""The command `market-index orders`, which lists the orders behind the books of a feed, with their venues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC

import click

from market_index import Pair, Tokens
from market_index_cli.console import loading
from market_index_cli.errors import EXIT_ABSENT, EXIT_FEED, Failed, feed_errors
from market_index_cli.logs import log_plainly
from market_index_cli.names import pair_of
from market_index_cli.options import FEED
from market_index_cli.tokens import TOKENS, Display, tokens_of
from market_index_feeds import VenueOrder, open_feed


@click.command(
    short_help="List the orders of FEED, with their venues.",
    epilog=f"""\b
Example:
  market-index orders kupo:http://127.0.0.1:1442 SNEK ADA

\b
Exit codes: 0, {EXIT_ABSENT} FEED does not track the pair, 2 wrong usage, {EXIT_FEED} FEED cannot be opened or read,
or has no orders.""",
)
@FEED
@click.argument("base", metavar="[BASE", required=False)
@click.argument("quote", metavar="QUOTE]", required=False)
@click.option("--skipped", is_flag=True, help="List the outputs that are no orders instead, each with the reason.")
@TOKENS
def orders(source: str, base: str | None, quote: str | None, *, skipped: bool, tokens: Tokens | None) -> None:
    """List the orders behind the books of FEED, or those of BASE and QUOTE, sorted by pair, side and price.

    Each is one line, with tabs between its id, venue, base, quote, side, price as its ratio, amount, expiry in UTC, and
    the fee of the venue, which is not part of the price. A hyphen is what FEED does not know.
    """
    if base is not None and quote is None:
        raise click.UsageError("BASE and QUOTE are given together")
    log_plainly()
    with feed_errors(), open_feed(source) as feed:
        with loading(feed.source) as progress:
            index = feed.read(progress)
    version = feed.version
    if version is None or version.orders is None:
        raise Failed(EXIT_FEED, f"{feed.source} has books, and not the orders behind them")
    pair = None
    if base is not None and quote is not None:
        pair = pair_of(base, quote, index, Display(tokens_of(source, tokens)))
    found = version.venue_orders
    if found is None:
        found = {key: VenueOrder(order, venue="-", fee="-") for key, order in version.orders.items()}
    rows = (f"{key}\t{reason}" for key, reason in sorted(version.skipped.items())) if skipped else _rows(found, pair)
    for row in rows:
        click.echo(row)


def _rows(found: Mapping[str, VenueOrder], pair: Pair | None) -> Iterator[str]:
    """Yield a line for each order, of one pair or of all."""
    chosen = [(key, one) for key, one in found.items() if pair is None or one.order.pair == pair]
    for order_id, one in sorted(
        chosen, key=lambda item: (item[1].order.pair, item[1].order.side.value, item[1].order.price, item[0])
    ):
        order = one.order
        numerator, denominator = order.price.as_integer_ratio()
        price = f"{numerator}/{denominator}"
        expiry = "-" if one.expires_at is None else one.expires_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        parts = (order_id, one.venue, order.pair.base, order.pair.quote, order.side.value, price, order.amount)
        yield "\t".join(map(str, (*parts, expiry, one.fee)))
