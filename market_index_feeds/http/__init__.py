"""A running service as a feed: its pair list, and the order book of each pair, asked for again and again.

Answers carry entity tags, so that what has not changed is not sent again.
"""

from market_index_feeds.http.source import open_http_source

__all__ = ["open_http_source"]
