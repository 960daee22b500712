"""Exponential backoff with jitter, for all retries of feeds, stores and relays."""

from __future__ import annotations

import random
from typing import Final

SHORTEST_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 2.0


def next_backoff(seconds: float) -> float:
    """Return the backoff in seconds that follows one of `seconds`, about twice as long; the first follows 0."""
    longest = min(max(2 * seconds, SHORTEST_SECONDS), LONGEST_SECONDS)
    return longest * random.uniform(0.5, 1)  # noqa: S311  # jitter: replicas must not all retry at the same moment
