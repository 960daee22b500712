"""Buckets of NATS JetStream, for publishing and following. It needs the extra `nats`.

A change is one atomic batch of messages; the headers of the last one are its record. Readers read pages of the stream
by direct requests, which no commit interrupts.
"""

from market_index_feeds.nats.address import BucketAddress
from market_index_feeds.nats.keeper import BucketKeeper
from market_index_feeds.nats.publishing import NatsStore
from market_index_feeds.nats.reading import NatsSource

__all__ = ["BucketAddress", "BucketKeeper", "NatsSource", "NatsStore"]
