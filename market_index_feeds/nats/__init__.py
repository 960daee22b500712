"""Buckets of NATS JetStream, for publishing and following. It needs the extra `nats`."""

from market_index_feeds.nats.feed import open_nats_feed
from market_index_feeds.nats.store import open_nats_store

__all__ = ["open_nats_feed", "open_nats_store"]
