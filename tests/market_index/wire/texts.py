"""One book and one pair list, as JSON values."""

from __future__ import annotations

import json
from typing import Any

from market_index import ADA, AssetId, Pair

TOKEN = "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f:534e454b"
PAIR = Pair(AssetId.parse(TOKEN), ADA)
BOOK: dict[str, Any] = {
    "base": TOKEN,
    "quote": "ADA",
    "spot": "0.0042",
    "bids": [
        {"price": "0.0041", "accumulated_liquidity": 5},
        {"price": "0.004", "accumulated_liquidity": 18446744073709551615},
    ],
    "asks": [{"price": "0.0043", "accumulated_liquidity": 1}],
}
LIST: dict[str, Any] = {
    "pairs": [
        {"base": "ADA", "quote": TOKEN, "last_spot": None},
        {"base": TOKEN, "quote": "ADA", "last_spot": "0.0042"},
    ]
}


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()
