"""Exact, ordered, immutable order books for Cardano trading pairs.

The package contains the values of a market index (assets, pairs, prices, levels, books, orders) and the index itself.
Constructors reject invalid input, so every object is valid. The package has no I/O, clock, logging or web code.
`market_index.wire` encodes and decodes the JSON of the read API, `market_index.display` shows values to people,
`market_index.strategies` draws arbitrary valid values for Hypothesis, and `market_index.stateful` tests an indexer.
"""

from market_index.assets import ADA, AssetId
from market_index.depth import CumulativeLevel, CumulativeLevels, Liquidity
from market_index.errors import (
    InvalidAssetId,
    InvalidFreshness,
    InvalidOrderBook,
    InvalidPairList,
    InvalidPrice,
    InvalidTokens,
    MarketIndexError,
    PriceOutOfRange,
)
from market_index.fills import SimulatedFill
from market_index.freshness import Freshness
from market_index.index import MarketIndex
from market_index.levels import Levels, PriceLevel
from market_index.live import LiveIndex
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import Pair, PairInfo, PairNotFound
from market_index.prices import Side, format_price, parse_price
from market_index.resting_orders import OrderNotFound, RestingOrders

__all__ = [
    "ADA",
    "AssetId",
    "CumulativeLevel",
    "CumulativeLevels",
    "Freshness",
    "InvalidAssetId",
    "InvalidFreshness",
    "InvalidOrderBook",
    "InvalidPairList",
    "InvalidPrice",
    "InvalidTokens",
    "Levels",
    "Liquidity",
    "LiveIndex",
    "MarketIndex",
    "MarketIndexError",
    "Order",
    "OrderBook",
    "OrderNotFound",
    "Pair",
    "PairInfo",
    "PairNotFound",
    "PriceLevel",
    "PriceOutOfRange",
    "RestingOrders",
    "Side",
    "SimulatedFill",
    "__version__",
    "format_price",
    "parse_price",
]

__version__ = "0.1.0"
"""The version of the distribution."""


def __dir__() -> list[str]:
    return __all__
