"""Writes the recording of `sample:` from a stream of a real exchange: see README.md beside it.

Usage: python docs/samples/make_recording.py tests/data/l2-stream.ndjson.gz | gzip -9n > recording.ndjson.gz
Then move recording.ndjson.gz to market_index_feeds/sample.
"""

from __future__ import annotations

import gzip
import json
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from market_index import ADA, Freshness, MarketIndex, OrderBook, Pair, wire
from market_index_feeds import open_feed
from market_index_feeds.line_json import CommitLine, commit_to_json

# The market of each token of the sample, and the powers of ten that its prices and its amounts are multiplied by.
MARKETS = {
    "SNEK": ("CRV-EUR", 3, 3),
    "MIN": ("SKL-BTC", 3, 6),
    "INDY": ("NMR-EUR", -2, 6),
    "IAG": ("BAND-GBP", -2, 6),
    "HOSKY": ("NU-GBP", -1, 6),
    "SUNDAE": ("DASH-BTC", 0, 6),
    "WingRiders": ("BAND-BTC", 2, 6),
    "AGIX": ("SKL-GBP", -2, 6),
    "iUSD": ("SKL-USD", 0, 6),
}
LEVELS = 10
MAX_BYTES = 990_000
SECONDS = 0.25
AS_OF = "a sample: changes of a real market, at made-up prices"
START = datetime(2026, 11, 22, tzinfo=UTC)

Levels = list[tuple[Decimal, int]]


def levels(changes: list[list[str]], power: int, units: int) -> Levels:
    """Return the levels of a message, with prices and amounts multiplied by powers of ten."""
    return [(Decimal(price).scaleb(power), int(Decimal(amount).scaleb(units))) for price, amount in changes]


def traded(before: OrderBook, after: OrderBook) -> Decimal | None:
    """Return the price of a best level that is gone, or else the last spot; the stream has no trades."""
    if before.best_bid and (not after.best_bid or after.best_bid.price < before.best_bid.price):
        return before.best_bid.price
    if before.best_ask and (not after.best_ask or after.best_ask.price > before.best_ask.price):
        return before.best_ask.price
    return before.spot


def change_lines(before: MarketIndex, after: MarketIndex, recorded_at: datetime) -> bytes:
    """Return the lines of a change, with its commit line; empty if there is none. No pair is removed."""
    books = [book for book in after.changes_since(before)[0] if before.get(book.pair) != book]
    if not books:
        return b""
    commit = commit_to_json(CommitLine(after.freshness, recorded_at))
    return b"\n".join([*map(wire.order_book_to_json, books), commit, b""])


def main(stream: str) -> None:
    """Write the recording to standard output."""
    sample = open_feed(Path(__file__).with_name("order-books.ndjson")).read()
    # The pairs of ADA, by the name of their other asset.
    pairs = {pair.base.asset_name: pair for pair in sample if pair.quote == ADA}
    pairs |= {pair.quote.asset_name: pair for pair in sample if pair.base == ADA}
    markets = {market: (pairs[name.encode()], price, amount) for name, (market, price, amount) in MARKETS.items()}
    unchanged = sample.without(*[pair for pair, *_ in markets.values()]).values()
    whole: dict[Pair, OrderBook] = {}
    before, written, seconds = MarketIndex(), 0, 0.0
    for line in gzip.decompress(Path(stream).read_bytes()).splitlines():
        message = json.loads(line)
        if message["product"] not in markets:
            continue
        pair, price, amount = markets[message["product"]]
        bids, asks = levels(message["bids"], price, amount), levels(message["asks"], price, amount)
        if message["snapshot"]:
            whole[pair] = OrderBook.from_levels(pair, bids, asks, spot=bids[0][0])
            continue
        book = whole[pair].apply(bids, asks)
        whole[pair] = book.apply(spot=traded(whole[pair], book))
        if len(whole) < len(markets):
            continue
        books = [*unchanged, *(book.depth(LEVELS) for book in whole.values())]
        after = MarketIndex(books).with_freshness(Freshness(AS_OF))
        lines = change_lines(before, after, START + timedelta(seconds=seconds))
        written += len(lines)
        if written > MAX_BYTES:
            break
        if lines:
            sys.stdout.buffer.write(lines)
            before, seconds = after, seconds + SECONDS


if __name__ == "__main__":
    main(*sys.argv[1:])
