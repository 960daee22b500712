"""The intervals, timeouts and sizes of a feed that polls a service, and waits for its changes."""

from __future__ import annotations

from attrs import frozen

from market_index import wire


@frozen(kw_only=True)
class PollingLimits:
    """How often a service is polled, how long that may take, and how large its responses may be."""

    poll_seconds: float = 1.0
    """Interval between the end of one round and the start of the next."""

    wait_seconds: int = 10
    """How long a request may wait for a change of the pair list or of a book, in whole seconds."""

    waiting_pairs: int = 64
    """The maximum number of pairs of a service that is waited for. Each one takes a connection and a thread."""

    change_seconds: float = 0.1
    """The shortest time between two updates from requests that wait."""

    without_waits_seconds: float = 30.0
    """How long a service is only polled after it did not let a request wait, or after such a request failed."""

    round_seconds: float = 60.0
    """Timeout of a round. If some pairs were not requested until then, the next round starts with them."""

    retry_seconds: float = 60.0
    """The longest pause that a service can ask for with `Retry-After`."""

    exchange_seconds: float = 20.0
    """Timeout of a whole exchange: the look-up of the host, the connection, the request, a wait for a change, and the
    response."""

    connect_seconds: float = 5.0
    """Timeout of connecting to one address of a host, after which the next one is tried, and of the TLS handshake."""

    pairs: int = 20_000
    """How many pairs a service may list."""

    list_bytes: int = 8 * 1024 * 1024
    """The maximum size of a pair list, decompressed."""

    book_bytes: int = wire.MAX_ORDER_BOOK_BYTES
    """The maximum size of an order book, decompressed."""
