"""Orders of SaturnSwap, which anyone can fill.

Sources: SPEC.md and src/ of Flux-Point-Studios/saturnswap-filler, the public filler (contract.ts, ratio.ts, fillV3.ts).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Final

from attrs import evolve

from market_index import AssetId
from market_index_feeds.ledger.datum import asset_of, constructor, constructor_of
from market_index_feeds.ledger.exchange import Candidate, Datum, Exchange, Fill, Offer, is_reference_to, only
from market_index_feeds.ledger.notation import (
    ADDRESS,
    INTEGER,
    MOMENT,
    NAME,
    NONE,
    POLICY,
    REFERENCE,
    U64,
    V2_REFERENCE,
)
from market_index_feeds.ledger.outputs import Spend, least_lovelace
from market_index_feeds.venue_orders import Fee, Output

_SOLD: Final = {"owner": ADDRESS, "offered policy": POLICY, "offered name": NAME, "amount": U64}
_ORDER: Final = _SOLD | {"asked policy": POLICY, "asked name": NAME, "asked amount": U64, "end": MOMENT}
SATURNSWAP_2: Final = constructor(0, _ORDER | {"previous": V2_REFERENCE})
COVERAGE: Final = (
    constructor(0, {"of": constructor(0, {"vault": ADDRESS, "premium": U64, "reference": None})}),
    NONE,
)
SATURNSWAP_3: Final = constructor(0, _ORDER | {"previous": REFERENCE, "least fill": INTEGER, "coverage": COVERAGE})

BUFFER: Final = 2_000_000
"""Lovelace that a partial fill of an order that sells more ADA may pay back to its owner: SPEC.md, section 8."""

MAX_PREMIUM: Final = 10_000
"""The highest premium that the public filler accepts, in 1/10000: `DEFAULT_MAX_PREMIUM_BPS` in fillV3.ts."""

SCALE: Final = 10**12


def share(whole: int, part: int, amount: int) -> int:
    """Return the amount times part / whole, rounded up as the contract does: `getRatioAmount` in ratio.ts.

    >>> share(3, 1, 100)
    34
    """
    return -(-amount * -(-part * SCALE // whole) // SCALE)


def _with_output(fee: Fee, asset: AssetId) -> tuple[Fee, ...]:
    """Return a fee that an output of its own pays, with the lovelace of the output (SPEC.md, section 7, step 6).

    It has an address with a stake part, and a datum that names the order. It is about 1.2 ADA.
    """
    lovelace = least_lovelace(bytes(57), {} if asset.is_ada else {asset: 2**32}, 47)
    if asset.is_ada:
        return (evolve(fee, least=lovelace),)
    return fee, Fee("lovelace", amount=lovelace)


def offers(hundredths: int, venue_key: str, datum: Datum, _: Output) -> Iterable[Offer]:
    """Return the offer of whole amounts, with the fees that the taker pays besides.

    The fee is a share of what the order sells, rounded down: `feePercentX100` in contract.ts. A covered order demands
    a premium of what it buys, at least 1, in an output for a vault that must be neither the owner's nor the venue's
    (SPEC.md, section 12.4). A partial fill has a least payment (12.3). Of token for token, no whole fill is possible in
    practice: it must pay as many lovelace as it pays tokens (section 7, step 5). The filler makes no fill whose fee is
    less than one unit (`fillSellAndFee` in ratio.ts). Of a partial fill, the contract takes the share of an amount that
    it rounds up, so that a fee can be higher by one unit, or by 10^-12 of what the order sells.
    """
    offered = asset_of(datum["offered policy"], datum["offered name"])
    asked = asset_of(datum["asked policy"], datum["asked name"])
    amount, asks, problem = datum["amount"], datum["asked amount"], ""
    fees = _with_output(Fee("sold", rate=Fraction(hundredths, 10_000)), offered)
    if coverage := datum.get("coverage", {}).get("of"):
        fees += _with_output(Fee("bought", rate=Fraction(coverage["premium"], 10_000), least=1), asked)
        vault = coverage["vault"]["payment"]
        if vault == datum["owner"]["payment"] or vault.get("key") == bytes.fromhex(venue_key):
            problem = "vault of the owner or the venue"
        elif coverage["premium"] > MAX_PREMIUM:
            problem = "premium above 100 %"
    # What a fill takes is what need not remain. Its payment, rounded up, must reach the least one.
    least, least_fill = max(datum.get("least fill", 0), 1), amount
    if least < asks:
        least_fill = max(amount - share(asks, asks - least, amount), (least - 1) * amount // asks + 1)
    most_fill = amount - share(asks, 1, amount) if asks and not (offered.is_ada or asked.is_ada) else amount
    least_fill = max(least_fill, -(-10_000 // hundredths))
    if amount < -(-10_000 // hundredths):
        problem = problem or "too little for a fee"
    elif most_fill < least_fill:
        problem = problem or "only a whole fill, which is impossible"
    yield Offer(
        offered,
        amount,
        asked,
        (asks, amount or 1),
        ends_at=datum["end"].get("milliseconds"),
        fees=fees,
        least_fill=max(least_fill, 1),
        most_fill=most_fill,
        problem=problem if amount else "",
    )


def fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a fill that pays exactly what the datums say. The payment is the first field of the redeemer.

    The amounts of a successor are within a range (SPEC.md, section 8). Only its bounds are accepted: all remains, or
    the buffer was paid to the owner. Other payments are lower bounds, so they prove no price.
    """
    redeemer = constructor_of(spend.redeemer)
    if redeemer is None or redeemer[0] != 0 or not redeemer[1] or type(redeemer[1][0]) is not int:
        return None
    successors = [one for one in created if is_reference_to(spent.output, one.datum["previous"])]
    terms, amount, asks, received = spent.terms, spent.datum["amount"], spent.datum["asked amount"], redeemer[1][0]
    if not successors:
        return Fill((terms.offered, amount), (terms.asked, received)) if received == asks else None
    successor = only(successors)
    if successor is None or not 0 < received < asks:
        return None
    remains = share(asks, asks - received, amount)
    accepted = {(remains, asks - received)}
    if terms.offered.is_ada and remains > BUFFER:
        accepted.add((remains - BUFFER, share(amount, remains - BUFFER, asks)))
    if (successor.datum["amount"], successor.datum["asked amount"]) not in accepted:
        return None
    return Fill((terms.offered, amount - remains), (terms.asked, received))


VENUE_KEY: Final = "cd51fc17182a3b82f3b776e8a5a0d8808e6fc520fa8455015e2410df"
"""The payment key of the address of fees on the main network: `FEE_PAYMENT_CRED` in contract.ts."""

PREPROD_VENUE_KEY: Final = "e5de5661f9d883a58189fb7947e6e45cbf862025d5d472bcd3006fb6"
"""The same on preprod: `V3_FEE_PAYMENT_CRED_PREPROD`."""

EXCHANGES: Final = tuple(
    Exchange(
        f"SaturnSwap {version}",
        script,
        layout,
        partial(offers, hundredths, PREPROD_VENUE_KEY if network == "preprod" else VENUE_KEY),
        fill,
        networks=(network,),
        source="saturnswap-filler, src/contract.ts; 2026-11-28",
    )
    for version, script, layout, hundredths, network in (
        ("1%", "73990b71041ceade6f867617f6ce9f187ab710ea2bf1ff8db7d0292f", SATURNSWAP_2, 100, "mainnet"),
        ("4%", "1af84a9e697e1e7b042a0a06f061e88182feb9e9ada950b36a916bd5", SATURNSWAP_2, 400, "mainnet"),
        ("V3", "6023f59dce0064f1d6d27594dbea25bc4305a9f6a10f3a064037553a", SATURNSWAP_3, 100, "mainnet"),
        ("V3", "ec457591a4f5ab0d070146558e5f1729fcc5c0b230472437be337625", SATURNSWAP_3, 100, "preprod"),
    )
)
