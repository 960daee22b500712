"""The command `market-index orders`, which lists the orders behind the books of a feed, with their venues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import click
from attrs import asdict, filters

from market_index import Order, Pair, RestingOrders
from market_index.errors import safe_repr
from market_index_cli import options
from market_index_cli.errors import EXIT_FEED, Failed, feed_errors
from market_index_cli.logs import log_plainly
from market_index_cli.names import pair_of
from market_index_cli.tokens import Display, display_of
from market_index_feeds import VenueOrder, Version

ORDER_COLUMNS: Final = (
    *("id", "venue", "pair", "base", "quote", "side", "price", "amount", "filled_by", "least_fill", "most_fill"),
    *("expires_at", "fee"),
)
SKIPPED_COLUMNS: Final = ("id", "venue", "pair", "slot", "address", "field", "reason")


@click.command
@options.FEED
@click.argument("base", metavar="[BASE", required=False)
@click.argument("quote", metavar="QUOTE]", required=False)
@click.option("--skipped", is_flag=True, help="List the outputs that are no orders instead, each with the reason.")
@click.option("--venue", metavar="NAME", help="List only those of a venue, by the first letters of its name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with all that is known.")
@options.HEADERS
@options.ADD_EXCHANGES
@options.TOKENS
def orders(
    source: str,
    base: str | None,
    quote: str | None,
    *,
    skipped: bool,
    venue: str | None,
    as_json: bool,
    headers: Path | None,
    add_exchanges: str | None,
    tokens: Path | None,
) -> None:
    """List the orders of FEED, with their venues.

    The orders behind the books of FEED, or of one book, are sorted by pair, side and price. Each is one line, with tabs
    between its columns, which the first line names. The price is a ratio. filled_by is who can fill the order: anyone,
    or only the matcher of the venue. least_fill and most_fill are how much of the offered asset one fill can take.
    expires_at is in UTC. The fee is not part of the price. A hyphen is what FEED does not know.

    Prices and amounts are in smallest units: here, --tokens only adds names, for the column pair, BASE and QUOTE.

    \b
    Example:
      market-index orders kupo:http://127.0.0.1:1442 SNEK ADA
    """
    if base is not None and quote is None:
        raise click.UsageError("BASE and QUOTE are given together")
    if skipped and base is not None:
        raise click.UsageError("--skipped lists the outputs of all pairs: leave out BASE and QUOTE")
    log_plainly()
    display = display_of(source, tokens, headers, is_exact=True)
    with feed_errors(), options.opened(source, headers, add_exchanges) as feed:
        index = feed.read()
    version = feed.version
    if version is None or version.orders is None:
        raise Failed(EXIT_FEED, f"{feed.name} has books, but not the orders behind them")
    pair = None if base is None or quote is None else pair_of(base, quote, index, display)
    columns = SKIPPED_COLUMNS if skipped else ORDER_COLUMNS
    rows = _skipped(version) if skipped else _orders(version, version.orders, pair, display)
    if venue is not None:
        names = {one.venue for one in (version.venue_orders or {}).values()}
        names |= {one.venue for one in version.skipped.values()}
        wanted = {name for name in names if name.lower().startswith(venue.lower())}
        if names and not wanted:
            raise click.UsageError(f"--venue must begin as one of {', '.join(sorted(names))}, got {safe_repr(venue)}")
        rows = (row for row in rows if row["venue"] in wanted)
    if not as_json:
        click.echo("\t".join(columns))
    for row in rows:
        click.echo(json.dumps(row) if as_json else "\t".join(str(row[name] or "-") for name in columns))


def _rank(item: tuple[str, Order]) -> tuple[Pair, str, Decimal | Fraction, str]:
    order_id, order = item
    return order.pair, order.side.value, order.price, order_id


def _orders(version: Version, orders: RestingOrders, pair: Pair | None, display: Display) -> Iterator[dict[str, Any]]:
    """Yield the rows of orders, or of those of a pair."""
    for order_id, order in sorted(orders.items(), key=_rank):
        if pair is None or order.pair == pair:
            row = dict.fromkeys(ORDER_COLUMNS) | {
                "id": order_id,
                "pair": display.pair_name(order.pair),
                "base": str(order.pair.base),
                "quote": str(order.pair.quote),
                "side": order.side.value,
                "price": "/".join(map(str, order.price.as_integer_ratio())),
                "amount": order.amount,
            }
            yield row if version.venue_orders is None else row | _of_venue(version.venue_orders[order_id])


def _of_venue(one: VenueOrder) -> dict[str, Any]:
    """Return what only an order of the ledger has."""
    output, others = one.output, filters.exclude("order", "output", "fees")
    return {
        **asdict(one, recurse=False, filter=others, value_serializer=_serialized),
        "fee": one.fee,
        "fees": [asdict(fee, value_serializer=_serialized) for fee in one.fees],
        "address": output.address,
        "value": {str(asset): amount for asset, amount in output.holds.items()},
        "datum": output.datum,
        "datum_is_inline": output.is_inline,
        "reference_script": output.reference_script,
    }


def _serialized(_: object, __: object, value: object) -> object:
    """Return a value as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, Fraction) else value


def _skipped(version: Version) -> Iterator[dict[str, Any]]:
    """Yield the rows of skipped outputs."""
    for output_id, one in sorted(version.skipped.items()):
        yield {
            "id": output_id,
            "venue": one.venue,
            "pair": None if one.pair is None else str(one.pair),
            "slot": one.output.slot,
            "address": one.output.address,
            "field": one.field,
            "reason": one.reason,
        }
