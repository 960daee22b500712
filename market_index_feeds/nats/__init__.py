"""Buckets of NATS JetStream, for publishing and following. It needs the extra `nats`.

A change is one atomic batch of messages; the headers of the last one are its record. Readers read pages of the stream
by direct requests, which no commit interrupts.
"""

from market_index_feeds.nats.publishing import NatsStore
from market_index_feeds.nats.reading import open_nats_source

__all__ = ["NatsStore", "open_nats_source"]
