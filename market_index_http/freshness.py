"""Converts the freshness of an index into header fields of its responses (decision 23)."""

from __future__ import annotations

from market_index import Freshness
from market_index.wire import AS_OF, PUBLISHED_AT, format_time
from market_index_http.bodies import Fields


def freshness_fields(freshness: Freshness) -> Fields:
    """Return the header fields of a freshness; an unknown value has no field.

    >>> freshness_fields(Freshness("slot 145000000"))
    ((b'market-index-as-of', b'slot 145000000'),)
    """
    fields = []
    if freshness.as_of is not None:
        fields.append((AS_OF.lower().encode("ascii"), freshness.as_of.encode("ascii")))
    if freshness.published_at is not None:
        fields.append((PUBLISHED_AT.lower().encode("ascii"), format_time(freshness.published_at).encode("ascii")))
    return tuple(fields)
