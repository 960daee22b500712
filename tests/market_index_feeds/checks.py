"""Waits until a feed has checked its source."""

from __future__ import annotations

from time import monotonic

from market_index_feeds import Feed
from tests.waiting import eventually


def await_check(feed: Feed) -> None:
    """Wait until a check that began after this call has found the source healthy."""
    for _ in range(2):
        # A check that is in progress now began before this call.
        now = monotonic()
        eventually(lambda now=now: monotonic() - feed.age > now)  # type: ignore[misc]  # a default has no type
