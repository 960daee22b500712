"""The header fields that say how fresh a response is (decision 23)."""

from __future__ import annotations

from typing import Final

from market_index import Freshness
from market_index.freshness import format_time
from market_index_http.bodies import Fields

AS_OF: Final = "Market-Index-As-Of"
"""What the books reflect, in the publisher's terms."""

PUBLISHED_AT: Final = "Market-Index-Published-At"
"""When they were published: RFC 3339, UTC, milliseconds."""


def freshness_fields(freshness: Freshness) -> Fields:
    """Return the header fields of a freshness; none for what is not known.

    >>> freshness_fields(Freshness("slot 145000000"))
    ((b'market-index-as-of', b'slot 145000000'),)
    """
    fields = []
    if freshness.as_of is not None:
        fields.append((AS_OF.lower().encode("ascii"), freshness.as_of.encode("ascii")))
    if freshness.published_at is not None:
        fields.append((PUBLISHED_AT.lower().encode("ascii"), format_time(freshness.published_at).encode("ascii")))
    return tuple(fields)
