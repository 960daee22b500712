"""A running service as a feed: its pair list, and the order book of each pair.

Requests have entity tags, so that the service does not send unchanged content again, and can wait for changes.
"""

from market_index_feeds.http.source import open_http_source

__all__ = ["open_http_source"]
