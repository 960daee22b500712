"""Limit orders of Splash, which its executors match with each other and with pools.

Sources: validators/orders/limit_order.ak of splashprotocol/splash-core (the contract), bloom-offchain-cardano/src/
orders/limit.rs and bloom-cardano-agent/resources/ of splashprotocol/splash-offchain-multiplatform (the executor).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final

from attrs import evolve

from market_index import ADA
from market_index_feeds.ledger.datum import constructor, constructor_of
from market_index_feeds.ledger.exchange import Candidate, Datum, Exchange, Fill, Offer, offer_of, only, rise
from market_index_feeds.ledger.notation import ADDRESS, ASSET, HASH, PRICE, U64
from market_index_feeds.ledger.outputs import Spend
from market_index_feeds.venue_orders import Fee, Output

SPLASH: Final = constructor(
    0,
    {"kind": b"\x00", "beacon": HASH, "offered": ASSET, "amount": U64, "step cost": U64, "step output": U64}
    | {"asked": ASSET, "price": PRICE, "fee": U64, "owner": ADDRESS, "cancellation key": HASH, "executors": [HASH]},
)

RESERVE: Final = 1_500_000
"""Lovelace that an executor leaves in an output that pays out a token: `MIN_LOVELACE` in limit.rs."""

LEAST_STEP_COST: Final = 600_000
"""Lovelace that an executor demands for each step: `minCostPerExStep` in validation-rules.json.template."""

EXECUTORS: Final = (
    "5cb2c968e5d1c7197a6ce7615967310a375545d9bc65063a964335b2",
    "9beb201348b07d30ee9370b0c353fb0ef566a4c79b153477f15ccf94",
    "6d0c0c4f9845be1102cd3760dd87d86675d0f842189bb46f00a8c952",
)
"""The keys of public executors: that of protocol-sdk, that of the recorded executions on the main network, and that of
protocol-sdk on preprod (packages/builder/src/builders/splash/operations/spotOrder/)."""


def offers(executors: Collection[bytes], least_step_cost: int, datum: Datum, output: Output) -> Iterable[Offer]:
    """Require what `try_from_ledger` in limit.rs requires, so that a public executor may and would execute the order.

    If the order names no executor, the contract lets anyone execute it. The fee and the cost of each step are lovelace
    of the order's own output, besides what it offers and a reserve; the fee shrinks with each fill. The origin of the
    beacon, which an executor may check, does not show in an output.
    """
    fees = (
        Fee("lovelace", amount=datum["fee"], is_prepaid=True),
        Fee("lovelace", amount=datum["step cost"], per="step", is_prepaid=True),
    )
    permitted = datum["executors"]
    offer = offer_of(datum, fees=fees, filled_by="matcher" if permitted else "anyone")
    asks, per_offered = offer.price
    received = offer.amount * asks // per_offered
    step = min(received, datum["step output"])
    budget = output.holds[ADA] - datum["fee"] - (0 if offer.asked.is_ada else RESERVE)
    budget -= offer.amount if offer.offered.is_ada else 0
    problem = ""
    if not output.is_inline:
        problem = "datum not inline"
    elif permitted and not any(key in executors for key in permitted):
        problem = "private executor"
    elif datum["step cost"] < least_step_cost:
        problem = "step cost too low"
    elif received not in U64 or not step or budget < received // step * datum["step cost"]:
        problem = "budget exhausted"
    # The contract accepts a smaller step only if it is the last one.
    least_fill = min(-(-step * per_offered // asks), offer.amount) if asks else 1
    yield evolve(offer, least_fill=max(least_fill, 1), problem=problem)


def fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a partial fill that paid a token.

    A complete fill pays an address of the owner, which is not read. Of what was paid in lovelace, the contract only
    bounds which part was the cost of the step, so it is no price. The contract compares each input of a transaction
    with the output at the same position, and also only bounds what left the order.
    """
    successor = only(one for one in created if one.output.index == spend.input_index)
    if constructor_of(spend.redeemer) != (1, []) or successor is None or spent.terms.asked.is_ada:
        return None
    before, after, terms = spent.datum, successor.datum, spent.terms
    is_same_order = {**before, "amount": after["amount"], "fee": after["fee"]} == after
    gave, left = before["amount"] - after["amount"], -rise(terms.offered, spent.output, successor.output)
    has_given = left >= gave if terms.offered.is_ada else left == gave
    if not is_same_order or not has_given or successor.output.address != spent.output.address:
        return None
    return Fill((terms.offered, gave), (terms.asked, rise(terms.asked, spent.output, successor.output)))


def splash(executors: Iterable[str] = EXECUTORS, least_step_cost: int = LEAST_STEP_COST) -> Exchange:
    """Return the exchange with the executors, by the hashes of their keys, and their least cost of a step, in lovelace.

    >>> from market_index_feeds import open_feed
    >>> feed = open_feed("kupo:http://127.0.0.1:1442", exchanges=[splash(least_step_cost=350_000)])
    """
    rule = partial(offers, frozenset(map(bytes.fromhex, executors)), least_step_cost)
    return Exchange(
        "Splash",
        "464eeee89f05aff787d40045af2a40a83fd96c513197d32fbc54ff02",
        SPLASH,
        rule,
        fill,
        networks=("mainnet", "preprod"),
        source="protocol-sdk, spotOrder/; splash-offchain-multiplatform, limit.rs; 2026-11-28",
    )


EXCHANGES: Final = (splash(),)
