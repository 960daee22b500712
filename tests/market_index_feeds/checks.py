"""Waiting for a feed to look at its source."""

from __future__ import annotations

from time import monotonic

from market_index_feeds import Feed
from tests.waiting import eventually


def checked(feed: Feed) -> None:
    """Wait until the feed has found its source healthy in a check that began after this call."""
    for _ in range(2):
        # The check that is under way now may have begun before.
        now = monotonic()
        eventually(lambda now=now: monotonic() - feed.age > now)  # type: ignore[misc]  # a default has no type
