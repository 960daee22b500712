"""Layouts that the datums of several exchanges have in common, in the notation of `Exchange`."""

from __future__ import annotations

from typing import Final

from market_index_feeds.ledger.datum import constructor

HASH: Final = frozenset({28})
U64: Final = range(2**64)
INTEGER: Final = range(-(2**512), 2**512)
NONE: Final = constructor(1, {})
POLICY: Final = frozenset({0, 28})
NAME: Final = frozenset(range(33))
ASSET_PARTS: Final = {"policy": POLICY, "name": NAME}
PRICE_PARTS: Final = {"numerator": range(2**128), "denominator": range(1, 2**128)}
ASSET: Final = constructor(0, ASSET_PARTS)
PRICE: Final = constructor(0, PRICE_PARTS)
CREDENTIAL: Final = (constructor(0, {"key": HASH}), constructor(1, {"script": HASH}))
STAKE: Final = (
    constructor(0, {"key": CREDENTIAL}),
    constructor(1, {"slot": U64, "transaction": U64, "certificate": U64}),
)
ADDRESS: Final = constructor(0, {"payment": CREDENTIAL, "stake": (NONE, constructor(0, {"of": STAKE}))})
MOMENT: Final = (constructor(0, {"milliseconds": INTEGER}), NONE)

REFERENCE: Final = constructor(0, {"id": frozenset({1, 32}), "index": U64})
V2_REFERENCE: Final = constructor(0, {"id": constructor(0, {"octets": frozenset({1, 32})}), "index": U64})
"""References to outputs, as Plutus V3 and Plutus V2 have them. A first order has one zero byte, or 32."""
