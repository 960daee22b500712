"""What the sibling packages need of the wire, and users do not.

Error bodies, the lines of a file that are not order books, header fields, events of orders, and bodies in parts. It
may change with any release.
"""

from market_index.wire.decode import (
    CommitLine,
    columns_from_json,
    commit_from_json,
    freshness_from_json,
    is_commit,
    is_retraction,
    object_from_json,
    retraction_from_json,
)
from market_index.wire.encode import (
    AS_OF,
    PUBLISHED_AT,
    commit_to_json,
    encoded_order_book,
    encoded_pair_list,
    error_to_json,
    freshness_to_json,
    retraction_to_json,
    with_identifiers,
)
from market_index.wire.json_value import Number
from market_index.wire.parts import EncodedPart, digest_of, text_of

__all__ = [
    "AS_OF",
    "PUBLISHED_AT",
    "CommitLine",
    "EncodedPart",
    "Number",
    "columns_from_json",
    "commit_from_json",
    "commit_to_json",
    "digest_of",
    "encoded_order_book",
    "encoded_pair_list",
    "error_to_json",
    "freshness_from_json",
    "freshness_to_json",
    "is_commit",
    "is_retraction",
    "object_from_json",
    "retraction_from_json",
    "retraction_to_json",
    "text_of",
    "with_identifiers",
]
