"""The limit of the JSON of an order book for readers."""

from __future__ import annotations

from market_index import InvalidOrderBook, wire


def require_size(text: bytes) -> None:
    """Raise `InvalidOrderBook` if a text has more than `wire.MAX_ORDER_BOOK_BYTES`.

    It precedes all other checks: of a longer text, a reader inflates or reads only one byte more than the limit.
    """
    if len(text) > wire.MAX_ORDER_BOOK_BYTES:
        raise InvalidOrderBook(f"must have at most {wire.MAX_ORDER_BOOK_BYTES} bytes of JSON, got more")
