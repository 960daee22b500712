"""A file or stream of events of orders, one JSON object per line. docs/order-events.md is the specification.

A producer sends a reset and its whole state, then the changes. A block makes all events since the previous block
visible atomically. A rollback restores the state of an earlier block. After a line that is malformed or contradicts the
state, the last valid index stays live until the next reset and its first block.
"""

from market_index_feeds.orders.blocks import DEFAULT_HISTORY
from market_index_feeds.orders.source import open_orders_source

__all__ = ["DEFAULT_HISTORY", "open_orders_source"]
