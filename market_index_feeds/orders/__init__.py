"""Orders by id, as events in lines of JSON: a file, or a stream. The specification is in docs/orders.md.

A producer sends its whole state after a reset, then what changes. A block makes all events since the last one visible
at once. A rollback restores the state of an earlier block. After a line that is malformed, or contradicts the state,
the last good index stays until the next reset and its block.
"""

from market_index_feeds.orders.blocks import DEFAULT_HISTORY
from market_index_feeds.orders.source import open_orders_source, open_orders_stream

__all__ = ["DEFAULT_HISTORY", "open_orders_source", "open_orders_stream"]
