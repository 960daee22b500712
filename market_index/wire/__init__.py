"""The JSON of the read API, both ways: the only owner of the names on the wire.

Decoding is strict. A missing or unknown key, a wrong type, a value out of range, levels out of order, `NaN` or trailing
text is rejected with an error that names the place (`bids[3].price`) and the value. No other exception escapes. If a
key repeats in an object, the last one wins.

Besides the two bodies of the contract, this package has the error body, the changes of a book in the stream, times in
RFC 3339, the freshness with its header fields, and bodies in encoded parts.

>>> from market_index import ADA, AssetId, OrderBook, Pair
>>> book = OrderBook.from_levels(Pair(ADA, AssetId(bytes(28), b"")), bids=[("0.50", 7)])
>>> text = order_book_to_json(book)
>>> text[text.index(b'"spot"') :]
b'"spot":null,"bids":[{"price":"0.5","accumulated_liquidity":7}],"asks":[]}'
>>> order_book_from_json(text) == book
True
"""

from market_index.freshness import format_time, parse_time
from market_index.wire.decode import (
    MAX_ORDER_BOOK_BYTES,
    freshness_from_json,
    object_from_json,
    order_book_changes_from_json,
    order_book_from_json,
    pair_list_from_json,
    pair_named_in,
)
from market_index.wire.encode import (
    AS_OF,
    PUBLISHED_AT,
    encoded_order_book,
    encoded_pair_list,
    error_to_json,
    freshness_to_json,
    order_book_changes_to_json,
    order_book_to_json,
    pair_list_to_json,
    pair_to_json,
    with_identifiers,
)
from market_index.wire.hooks import configure_converter
from market_index.wire.json_value import Number
from market_index.wire.parts import EncodedPart, digest_of, text_of

__all__ = [
    "AS_OF",
    "MAX_ORDER_BOOK_BYTES",
    "PUBLISHED_AT",
    "EncodedPart",
    "Number",
    "configure_converter",
    "digest_of",
    "encoded_order_book",
    "encoded_pair_list",
    "error_to_json",
    "format_time",
    "freshness_from_json",
    "freshness_to_json",
    "object_from_json",
    "order_book_changes_from_json",
    "order_book_changes_to_json",
    "order_book_from_json",
    "order_book_to_json",
    "pair_list_from_json",
    "pair_list_to_json",
    "pair_named_in",
    "pair_to_json",
    "parse_time",
    "text_of",
    "with_identifiers",
]
