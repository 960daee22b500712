"""Partial orders of GeniusYield, which anyone can fill.

Sources: geniusyield-dex-api/src/GeniusYield/ of geniusyield/dex-contracts-api (Scripts/Dex/PartialOrder.hs, Api/Dex/
PartialOrder.hs), scripts/kupo-*.sh of geniusyield/smart-order-router (the scripts and policies).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from market_index import AssetId
from market_index_feeds.ledger.datum import Skipped, constructor, constructor_of
from market_index_feeds.ledger.exchange import Candidate, Datum, Exchange, Fill, Offer, offer_of, only
from market_index_feeds.ledger.notation import ADDRESS, ASSET, HASH, MOMENT, PRICE, U64
from market_index_feeds.ledger.outputs import Spend
from market_index_feeds.venue_orders import Fee, Output

GENIUSYIELD: Final = constructor(
    0,
    {"owner key": HASH, "owner": ADDRESS, "offered": ASSET, "original amount": U64, "amount": U64, "asked": ASSET}
    | {"price": PRICE, "NFT": frozenset({32}), "start": MOMENT, "end": MOMENT, "fills": U64, "maker fee": U64}
    | {"taker fee": U64, "contained fee": constructor(0, {"lovelace": U64, "offered": U64, "asked": U64}), "paid": U64},
)


def offers(policy: str, datum: Datum, output: Output) -> Iterable[Offer]:
    """Require the NFT, which is minted for valid orders only.

    The payment of a fill is the amount times the price, rounded up once. The taker fee is flat: if a transaction fills
    several orders, only the largest of their fees is due. The service of GeniusYield adds a percentage of the asked
    asset, which the contract does not require.
    """
    nft = AssetId(bytes.fromhex(policy), datum["NFT"])
    if output.holds.get(nft) != 1 or datum["amount"] > datum["original amount"]:
        raise Skipped("no valid NFT")
    starts_at, ends_at = datum["start"].get("milliseconds"), datum["end"].get("milliseconds")
    fees = (Fee("lovelace", amount=datum["taker fee"], per="transaction"),) if datum["taker fee"] else ()
    yield offer_of(datum, starts_at=starts_at, ends_at=ends_at, fees=fees)


def fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a partial fill, which moves the NFT into its successor. Values contain fees, so datums are compared."""
    redeemer = constructor_of(spend.redeemer)
    successor = only(one for one in created if one.datum["NFT"] == spent.datum["NFT"])
    if redeemer is None or redeemer[0] != 1 or successor is None:
        return None
    before, after, terms = spent.datum, successor.datum, spent.terms
    gave, received = before["amount"] - after["amount"], after["paid"] - before["paid"]
    return Fill((terms.offered, gave), (terms.asked, received))


def _exchange(script: str, policy: str, network: str = "mainnet") -> Exchange:
    source = f"smart-order-router, scripts/kupo-{network}.sh; 2026-11-28"
    rule = partial(offers, policy)
    return Exchange("GeniusYield", script, GENIUSYIELD, rule, fill, policy, networks=(network,), source=source)


EXCHANGES: Final = (
    _exchange(
        "edfff663d37fc5f9753bc4222e0da2bfe08aa48db0837d2c329adeb3",
        "22f6999d4effc0ade05f6e1a70b702c65d6b3cdf0e301e4a8267f585",
    ),
    _exchange(
        "a8d7ff5cf4c117270288372f9ac8e1ce5b758ae15a7851c41661a48c",
        "642c1f7bf79ca48c0f97239fcb2f3b42b92f2548184ab394e1e1e503",
    ),
    _exchange(
        "44376a5f63342097a4f20401088c62da272639e60644a9ec1d70f444",
        "53827a77e4ed3d5c211706708c0aa9b9a3be19db901b1cbf7fa515b8",
        "preprod",
    ),
)
