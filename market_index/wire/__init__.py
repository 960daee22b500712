"""The JSON of the read API, both ways: the only owner of the names on the wire.

Decoding is strict. A missing, unknown or repeated key, a wrong type, a value out of range, levels out of order, `NaN`
or trailing text is rejected with an error that names the place (`bids[3].price`) and the value. No other
exception escapes.

`market_index.wire.internal` has the names that only the sibling packages need.

>>> from market_index import ADA, AssetId, OrderBook, Pair
>>> book = OrderBook.from_levels(Pair(ADA, AssetId(bytes(28), b"")), bids=[("0.50", 7)])
>>> text = order_book_to_json(book)
>>> text[text.index(b'"spot"') :]
b'"spot":null,"bids":[{"price":"0.5","accumulated_liquidity":7}],"asks":[]}'
>>> order_book_from_json(text) == book
True
"""

from market_index.wire.decode import (
    MAX_ORDER_BOOK_BYTES,
    order_book_from_json,
    pair_list_from_json,
    pair_named_in,
)
from market_index.wire.encode import order_book_to_json, pair_list_to_json

__all__ = [
    "MAX_ORDER_BOOK_BYTES",
    "order_book_from_json",
    "order_book_to_json",
    "pair_list_from_json",
    "pair_list_to_json",
    "pair_named_in",
]
