"""The JSON of the read API, both ways: the only owner of the names on the wire.

Decoding is strict. A missing or unknown key, a wrong type, a value out of range, levels out of order, `NaN` or trailing
text is rejected with an error that names the place (`bids[3].price`) and the value. No other exception escapes. If a
key repeats in an object, the last one wins.

Besides the two bodies of the contract, this package has the error body, the changes of a book in the stream, the lines
of a file that are not order books (commit lines and retract lines), times in RFC 3339, the header fields of the
freshness, and bodies in encoded parts.

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
    CommitLine,
    commit_from_json,
    freshness_from_json,
    is_commit,
    is_retraction,
    object_from_json,
    order_book_changes_from_json,
    order_book_from_json,
    pair_list_from_json,
    pair_named_in,
    retraction_from_json,
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
    retraction_to_json,
    with_identifiers,
)
from market_index.wire.hooks import configure_converter
from market_index.wire.json_value import Number
from market_index.wire.parts import EncodedPart, digest_of, text_of

__all__ = [
    "AS_OF",
    "MAX_ORDER_BOOK_BYTES",
    "PUBLISHED_AT",
    "CommitLine",
    "EncodedPart",
    "Number",
    "commit_from_json",
    "configure_converter",
    "digest_of",
    "encoded_order_book",
    "encoded_pair_list",
    "error_to_json",
    "format_time",
    "freshness_from_json",
    "freshness_to_json",
    "is_commit",
    "is_retraction",
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
    "retraction_from_json",
    "retraction_to_json",
    "text_of",
    "with_identifiers",
]
