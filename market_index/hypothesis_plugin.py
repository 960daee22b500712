"""The Hypothesis entry point, which registers the strategies by type.

Hypothesis calls it during its own import, which may be triggered by the import of `market_index.strategies`. To avoid
an import cycle, this module imports neither of them at its top.
"""

from __future__ import annotations

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
    for of_type, strategy in _STRATEGIES.items():
        _register(getattr(display if of_type == "Tokens" else market_index, of_type), strategy)


def _register(of_type: type, strategy: str) -> None:
    """Register the strategy of this name; `market_index.strategies` is imported when a value is drawn."""
    strategies = import_module("hypothesis.strategies")

    def resolve(wanted: type) -> Any:
        # A supertype, such as Mapping for MarketIndex, keeps the strategy of Hypothesis.
        if wanted is not of_type:
            return NotImplemented
        return getattr(import_module("market_index.strategies"), strategy)()

    strategies.register_type_strategy(of_type, resolve)
