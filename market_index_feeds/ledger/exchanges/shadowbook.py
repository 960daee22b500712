"""Limit orders of Shadowbook, which its executors match.

Source: on-chain-interactions/ of splashprotocol/docs-shadowbook.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from market_index import ADA
from market_index_feeds.ledger.datum import Skipped, constructor
from market_index_feeds.ledger.exchange import Datum, Exchange, Offer, offer_of
from market_index_feeds.ledger.notation import ADDRESS, ASSET_PARTS, HASH, PRICE_PARTS, U64
from market_index_feeds.venue_orders import Fee, Output

SHADOWBOOK: Final = constructor(
    0,
    {"kind": b"\x09", "owner": ADDRESS, "offered": ASSET_PARTS, "amount": U64, "step fee": U64, "asked": ASSET_PARTS}
    | {"price": PRICE_PARTS, "cancellation key": HASH, "beacon": frozenset({20})},
)

STEPS: Final = 3
"""How many steps of its execution a limit order pays: limit-order.mdx, "Execution fee"."""

LEAST_LOVELACE: Final = 2_000_000
"""The least lovelace of an order besides what it offers: limit-order.mdx, "Collateral"."""


def offers(datum: Datum, output: Output) -> Iterable[Offer]:
    """Require a limit order that carries what limit-order.mdx demands; its beacon begins with 0.

    A numerator of 1 accepts any price (market-order.mdx). The contract is not published, so no execution is proved.
    """
    if datum["beacon"][0] != 0 or datum["price"]["numerator"] == 1:
        raise Skipped("market order")
    fee = Fee("lovelace", amount=datum["step fee"], per="step", is_prepaid=True)
    offer = offer_of(datum, fees=(fee,), filled_by="matcher")
    besides = output.holds[ADA] - (offer.amount if offer.offered.is_ada else 0)
    if besides < max(STEPS * datum["step fee"], LEAST_LOVELACE):
        raise Skipped("carries too little lovelace")
    yield offer


EXCHANGES: Final = (
    Exchange(
        "Shadowbook",
        "9e130eb0323f31df50bfbb731f35f5a795a630ef727b4ba272460b55",
        SHADOWBOOK,
        offers,
        source="docs-shadowbook, on-chain-interactions/limit-order.mdx; 2026-11-28",
    ),
)
