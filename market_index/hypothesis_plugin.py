"""The Hypothesis entry point, which registers the strategies by type.

Hypothesis calls it during its own import, which may be triggered by the import of `market_index.strategies`. To avoid
an import cycle, this module imports neither of them at its top.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any, Final

import market_index
from market_index import display

_STRATEGIES: Final = {
    "AssetId": "asset_ids",
    "Pair": "pairs",
    "PairInfo": "pair_infos",
    "PriceLevel": "price_levels",
    "Levels": "levels",
    "Order": "orders",
    "OrderBook": "order_books",
    "RestingOrders": "resting_orders",
    "Freshness": "freshness",
    "MarketIndex": "market_indexes",
    "Tokens": "tokens",
}


def register_types() -> None:
    """Register each strategy of a public type, for `st.from_type` and `@given` by type hint."""
    register = import_module("hypothesis.strategies").register_type_strategy
    for name, strategy in _STRATEGIES.items():
        of_type = getattr(display if name == "Tokens" else market_index, name)
        register(of_type, partial(_resolved, of_type, strategy))


def _resolved(of_type: type, strategy: str, wanted: type) -> Any:
    """Return the strategy of this name; `market_index.strategies` is imported when a value is drawn."""
    # A supertype, such as Mapping for MarketIndex, keeps the strategy of Hypothesis.
    return getattr(import_module("market_index.strategies"), strategy)() if wanted is of_type else NotImplemented
