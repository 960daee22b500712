"""Checks what a Kupo indexes: `market-index check kupo:`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from attrs import frozen

from market_index import MarketIndexError
from market_index.contract import Request, Response
from market_index.wire import object_from_json
from market_index_feeds.errors import FeedError
from market_index_feeds.feed import Feed
from market_index_feeds.ledger.source import LedgerSource
from market_index_feeds.source import Version

MAX_LAG_SLOTS: Final = 120
"""How many seconds the index of Kupo may be behind its node."""


@frozen
class LedgerFact:
    """A fact about a Kupo, and whether it is as it must be; None if it is only counted."""

    name: str
    text: str
    holds: bool | None = None


def check_ledger(source: LedgerSource, send: Callable[[Request], Response]) -> Iterator[LedgerFact]:
    """Yield the facts: version, node, lag, patterns and network, the exchanges, and the spots of the window.

    Raises:
        FeedError: It cannot be read.
        NoResponse: It does not respond, which `send` raises.
    """
    response = send(Request("/health", headers={"Accept": "application/json"}))
    try:
        health = object_from_json(response.body)
    except MarketIndexError:
        raise FeedError(f"the health must be a JSON object, got {response}: is it a Kupo?") from None
    yield LedgerFact("version", str(health.get("version")))
    yield LedgerFact("node", f"{health.get('connection_status')}", health.get("connection_status") == "connected")
    tip, read = health.get("most_recent_node_tip"), response.headers.get("x-most-recent-checkpoint", "")
    if isinstance(tip, int) and read.isdecimal():
        lag = tip - int(read)
        yield LedgerFact("lag", f"{lag} slots behind its node", lag <= MAX_LAG_SLOTS)
    else:
        yield LedgerFact("lag", "unknown: Kupo states no slot of its own, or none of its node", holds=False)
    with Feed(source) as feed:
        index = feed.read()
        version = feed.version or Version(index)
        yield LedgerFact(
            "patterns and network", version.problem or "all exchanges are indexed", version.problem is None
        )
        orders = Counter(one.venue for one in (version.venue_orders or {}).values())
        skipped = Counter(one.venue for one in version.skipped.values())
        for venue in dict.fromkeys(exchange.venue for exchange in source.exchanges):
            yield LedgerFact(venue, f"{orders[venue]} orders, {skipped[venue]} outputs skipped")
        spots = sum(book.spot is not None for book in index.values())
        yield LedgerFact("window", f"{source.hours} hours: {spots} of {len(index)} pairs have a spot")
