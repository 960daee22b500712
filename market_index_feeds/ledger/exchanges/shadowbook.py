"""Limit orders of Shadowbook, which its executors match."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cbor2 import CBORTag

from market_index_feeds.ledger.datum import Skipped
from market_index_feeds.ledger.exchange import (
    ADDRESS,
    ASSET_PARTS,
    HASH,
    PRICE_PARTS,
    U64,
    Datum,
    Exchange,
    Offer,
    offer_of,
)
from market_index_feeds.ledger.outputs import Output

SHADOWBOOK: Final = CBORTag(
    121,
    {"kind": b"\x09", "owner": ADDRESS, "offered": ASSET_PARTS, "amount": U64, "step fee": U64, "asked": ASSET_PARTS}
    | {"price": PRICE_PARTS, "cancellation key": HASH, "beacon": frozenset({20})},
)


def shadowbook(datum: Datum, _: Output) -> Iterable[Offer]:
    """Require a limit order, whose beacon begins with 0. A numerator of 1 accepts any price.

    Its executor matches orders, as that of Splash. A limit order carries the lovelace of 3 steps, a market order of 1.
    """
    if datum["beacon"][0] != 0 or datum["price"]["numerator"] == 1:
        raise Skipped("market order")
    yield offer_of(datum, fee=f"{datum['step fee']} lovelace for each step")


EXCHANGES: Final = (
    Exchange("Shadowbook", "9e130eb0323f31df50bfbb731f35f5a795a630ef727b4ba272460b55", SHADOWBOOK, shadowbook),
)
