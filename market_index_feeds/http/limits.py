"""The intervals, timeouts and sizes of a feed that polls a service."""

from __future__ import annotations

from attrs import frozen

from market_index import wire


@frozen(kw_only=True)
class PollingLimits:
    """How often a service is polled, how long that may take, and how large its responses may be."""

    poll_seconds: float = 1.0
    """Interval between the end of one round and the start of the next."""

    round_seconds: float = 60.0
    """Timeout of a round. If some pairs were not requested until then, the next round starts with them."""

    exchange_seconds: float = 20.0
    """Timeout of a whole exchange: the look-up of the host, the connection, the request, the head and the body."""

    connect_seconds: float = 5.0
    """Timeout of connecting to one address of a host, after which the next one is tried, and of the TLS handshake."""

    pairs: int = 20_000
    """How many pairs a service may list."""

    list_bytes: int = 8 * 1024 * 1024
    """The maximum size of a pair list."""

    book_bytes: int = wire.MAX_ORDER_BOOK_BYTES
    """The maximum size of an order book."""
