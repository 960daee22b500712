"""Limit orders of Splash, which its executors match."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import evolve
from cbor2 import CBORTag

from market_index import ADA
from market_index_feeds.ledger.datum import constructor_of
from market_index_feeds.ledger.exchange import (
    ADDRESS,
    ASSET,
    HASH,
    PRICE,
    U64,
    Candidate,
    Datum,
    Exchange,
    Fill,
    Offer,
    offer_of,
    only,
    rise,
)
from market_index_feeds.ledger.outputs import Output, Spend

SPLASH: Final = CBORTag(
    121,
    {"kind": b"\x00", "beacon": HASH, "offered": ASSET, "amount": U64, "step cost": U64, "step output": U64}
    | {"asked": ASSET, "price": PRICE, "fee": U64, "owner": ADDRESS, "cancellation key": HASH, "executors": [HASH]},
)

SPLASH_RESERVE: Final = 1_500_000
"""Lovelace that an executor of Splash leaves in an output that pays out a token."""


def splash(datum: Datum, output: Output) -> Iterable[Offer]:
    """Require the lovelace that pay all steps of the execution, as the executor of Splash does.

    An executor matches orders, so a taker places an order, too. The fee of the datum shrinks with each fill. Both the
    fee and the cost of each step are lovelace of the order's own output, besides what it offers and the deposit.
    """
    fee = f"{datum['fee']} lovelace to the executor, and {datum['step cost']} for each step"
    offer = offer_of(datum, fee=fee)
    asks, per_offered = offer.price
    received = offer.amount * asks // per_offered
    step = min(received, datum["step output"])
    budget = output.holds[ADA] - datum["fee"] - (0 if offer.asked.is_ada else SPLASH_RESERVE)
    budget -= offer.amount if offer.offered.is_ada else 0
    is_exhausted = not step * datum["step cost"] or budget < received // step * datum["step cost"]
    yield evolve(offer, problem="budget exhausted" if received not in U64 or is_exhausted else "")


def splash_fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a partial fill: a complete one pays an address of the owner, which this does not read.

    The contract compares each input of a transaction with the output at the same position.
    """
    successor = only(one for one in created if one.output.index == spend.input_index)
    if constructor_of(spend.redeemer) != (1, []) or successor is None:
        return None
    before, after = spent.datum, successor.datum
    is_same_order = {**before, "amount": after["amount"], "fee": after["fee"]} == after
    if not is_same_order or successor.output.address != spent.output.address:
        return None
    terms = spent.terms
    received = rise(terms.asked, spent.output, successor.output)
    if terms.asked.is_ada:
        received += before["fee"] - after["fee"] + before["step cost"]
    return Fill((terms.offered, before["amount"] - after["amount"]), (terms.asked, received), successor.output.place)


EXCHANGES: Final = (
    Exchange("Splash", "464eeee89f05aff787d40045af2a40a83fd96c513197d32fbc54ff02", SPLASH, splash, splash_fill),
)
