"""Orders of SaturnSwap, which anyone can fill."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from cbor2 import CBORTag

from market_index_feeds.ledger.datum import constructor_of
from market_index_feeds.ledger.exchange import (
    ADDRESS,
    INTEGER,
    MOMENT,
    NAME,
    NONE,
    POLICY,
    REFERENCE,
    U64,
    WRAPPED_REFERENCE,
    Candidate,
    Datum,
    Exchange,
    Fill,
    Offer,
    asset_of,
    no_fill,
    only,
)
from market_index_feeds.ledger.outputs import Output, Spend

_ORDER: Final = {"owner": ADDRESS, "offered policy": POLICY, "offered name": NAME, "amount": U64} | {
    "asked policy": POLICY,
    "asked name": NAME,
    "asked amount": U64,
    "end": MOMENT,
}
SATURNSWAP_2: Final = CBORTag(121, _ORDER | {"previous": WRAPPED_REFERENCE})
COVERAGE: Final = (CBORTag(121, {"of": CBORTag(121, {"vault": ADDRESS, "premium": U64, "reference": None})}), NONE)
SATURNSWAP_3: Final = CBORTag(121, _ORDER | {"previous": REFERENCE, "least fill": INTEGER, "coverage": COVERAGE})


def saturnswap(rate: int, datum: Datum, _: Output) -> Iterable[Offer]:
    """Return the offer of whole amounts."""
    fee = f"{rate} % of what the taker gets" if rate else "none"
    if premium := datum.get("coverage", {}).get("of", {}).get("premium"):
        fee = f"a premium of {premium}/10000 of what the taker pays"
    yield Offer(
        asset_of(datum["offered policy"], datum["offered name"]),
        datum["amount"],
        asset_of(datum["asked policy"], datum["asked name"]),
        (datum["asked amount"], datum["amount"] or 1),
        ends_at=datum["end"].get("milliseconds"),
        fee=fee,
    )


def saturnswap_fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a fill that pays exactly what the datums say. The payment is the first field of the redeemer.

    Other payments are lower bounds, so they prove no price.
    """
    redeemer = constructor_of(spend.redeemer)
    if redeemer is None or redeemer[0] != 0 or not redeemer[1] or type(redeemer[1][0]) is not int:
        return None
    named = {"id": bytes.fromhex(spent.output.transaction_id), "index": spent.output.index}
    successors = [one for one in created if one.datum["previous"] == named]
    before, terms, received = spent.datum, spent.terms, redeemer[1][0]
    if not successors:
        place = spend.slot, -1, -1
        is_complete = received == before["asked amount"]
        return Fill((terms.offered, before["amount"]), (terms.asked, received), place) if is_complete else None
    successor = only(successors)
    if successor is None or before["asked amount"] - successor.datum["asked amount"] != received:
        return None
    gave = before["amount"] - successor.datum["amount"]
    return Fill((terms.offered, gave), (terms.asked, received), successor.output.place)


def _saturnswap(version: str, script: str, layout: CBORTag, rate: int = 0) -> Exchange:
    fill = saturnswap_fill if layout is SATURNSWAP_3 else no_fill
    return Exchange(f"SaturnSwap {version}", script, layout, partial(saturnswap, rate), fill)


EXCHANGES: Final = (
    _saturnswap("1%", "73990b71041ceade6f867617f6ce9f187ab710ea2bf1ff8db7d0292f", SATURNSWAP_2, rate=1),
    _saturnswap("4%", "1af84a9e697e1e7b042a0a06f061e88182feb9e9ada950b36a916bd5", SATURNSWAP_2, rate=4),
    _saturnswap("V3", "6023f59dce0064f1d6d27594dbea25bc4305a9f6a10f3a064037553a", SATURNSWAP_3),
    _saturnswap("V3 preprod", "ec457591a4f5ab0d070146558e5f1729fcc5c0b230472437be337625", SATURNSWAP_3),
)
