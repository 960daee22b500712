"""One book and one pair list as JSON values, and changes of JSON values at any place."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

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


NESTED = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-1, 2**65) | st.sampled_from(["", "x", "1", "0.50", "1e5"]),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.sampled_from(["price", "x"]), parts, max_size=2),
    max_leaves=3,
)


def replaced(data: st.DataObject, value: Any) -> Any:
    """Return a JSON value with a change at any place: another value, a key or an item that is absent, new or twice."""
    keys = list(range(len(value)) if isinstance(value, list) else value) if isinstance(value, (list, dict)) else []
    if not keys or data.draw(st.integers(0, 5)) == 0:
        return data.draw(NESTED | st.just([value, value]))
    key = data.draw(st.sampled_from(keys))
    copied = value.copy()
    match data.draw(st.sampled_from(["descend", "descend", "absent", "new", "twice"])):
        case "descend":
            copied[key] = replaced(data, value[key])
        case "absent":
            del copied[key]
        case "new" if isinstance(copied, dict):
            copied[data.draw(st.sampled_from(["price", "spot", "size"]))] = data.draw(NESTED)
        case _ if isinstance(copied, list):
            copied.append(copied[key])
    return copied
