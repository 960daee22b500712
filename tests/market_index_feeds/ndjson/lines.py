"""Lines of order books, for the tests of files and streams."""

from __future__ import annotations

import json
from pathlib import Path

from market_index import OrderBook, wire
from tests.market_index_feeds.made_up import pair


def line(number: int, spot: str | None = None) -> bytes:
    return wire.order_book_to_json(OrderBook(pair(number), spot=spot)) + b"\n"


def retraction(number: int) -> bytes:
    """Return a line that retracts a pair."""
    return wire.retraction_to_json(pair(number)) + b"\n"


def commit(as_of: object, **more: object) -> bytes:
    """Return a line that commits the lines before it."""
    return json.dumps({"as_of": as_of, **more}).encode() + b"\n"


def rename_over(path: Path, content: bytes) -> None:
    """Replace a file atomically, as producers should."""
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    beside.replace(path)
