"""The limit of the JSON of an order book: 16 MiB for every reader."""

from __future__ import annotations

import pytest

from market_index import InvalidOrderBook
from market_index_feeds.book_size import require_size


def test_a_text_may_have_16_mib_and_no_byte_more():
    text = bytes(16 * 1024 * 1024)
    require_size(text)
    with pytest.raises(InvalidOrderBook, match=r"^must have at most 16777216 bytes of JSON, got more$"):
        require_size(text + b"x")
