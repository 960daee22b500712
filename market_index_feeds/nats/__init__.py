"""Buckets of NATS JetStream, for publishing and following. It needs the extra `nats`."""

from market_index_feeds.nats.source import open_nats_source
from market_index_feeds.nats.store import open_nats_store

__all__ = ["open_nats_source", "open_nats_store"]
