"""The JSON of the read API, both ways: the only owner of the names on the wire.

Decoding is strict. A missing, unknown or repeated key, a wrong type, a value out of range, levels out of order, `NaN`
or trailing text is rejected with an error that names the place (`bids[3].price`) and the value. No other
exception escapes.

Encoding works in parts: the text of a chunk of levels or pairs is computed once and shared by all versions that share
the chunk. A part has a digest, so that a digest of the whole costs no second pass over the text.

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
    freshness_from_json,
    is_freshness,
    object_from_json,
    order_book_from_json,
    pair_list_from_json,
    pair_named_in,
)
from market_index.wire.encode import (
    AS_OF,
    PUBLISHED_AT,
    EncodedPart,
    digest_of,
    encoded_order_book,
    encoded_pair_list,
    error_to_json,
    freshness_to_json,
    order_book_to_json,
    pair_list_to_json,
    shared_parts,
    text_of,
    with_identifiers,
)
from market_index.wire.json_value import Number

__all__ = [
    "AS_OF",
    "MAX_ORDER_BOOK_BYTES",
    "PUBLISHED_AT",
    "EncodedPart",
    "Number",
    "digest_of",
    "encoded_order_book",
    "encoded_pair_list",
    "error_to_json",
    "freshness_from_json",
    "freshness_to_json",
    "is_freshness",
    "object_from_json",
    "order_book_from_json",
    "order_book_to_json",
    "pair_list_from_json",
    "pair_list_to_json",
    "pair_named_in",
    "shared_parts",
    "text_of",
    "with_identifiers",
]
