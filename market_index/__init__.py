"""Exact, ordered, immutable order books for Cardano trading pairs.

No I/O, no clock, no web stack: the values that a market index is made of, and the index itself. What can be refused
is refused where a value is made; a value that exists is right. `market_index.wire` reads and writes the JSON of the
read API, `market_index.strategies` makes arbitrary valid values for Hypothesis.
"""

from market_index import wire
from market_index.assets import ADA, AssetId
from market_index.depth import CumulativeLevel, Liquidity
from market_index.errors import (
    InvalidAssetId,
    InvalidOrderBook,
    InvalidPairList,
    InvalidPrice,
    MarketIndexError,
)
from market_index.fills import Fill
from market_index.index import MarketIndex
from market_index.levels import PriceLevel, Side
from market_index.live import LiveIndex
from market_index.order_book import Order, OrderBook
from market_index.pairs import Pair, PairInfo, PairNotFound
from market_index.prices import format_price, parse_price

__all__ = [
    "ADA",
    "AssetId",
    "CumulativeLevel",
    "Fill",
    "InvalidAssetId",
    "InvalidOrderBook",
    "InvalidPairList",
    "InvalidPrice",
    "Liquidity",
    "LiveIndex",
    "MarketIndex",
    "MarketIndexError",
    "Order",
    "OrderBook",
    "Pair",
    "PairInfo",
    "PairNotFound",
    "PriceLevel",
    "Side",
    "format_price",
    "parse_price",
    "wire",
]
