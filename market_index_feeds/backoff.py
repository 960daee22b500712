"""How long to wait between one attempt and the next."""

from __future__ import annotations

import random
from typing import Final

SHORTEST_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 2.0


def next_backoff(seconds: float) -> float:
    """Return the backoff that follows one of so many seconds: about twice as long, with jitter; 0 before the first."""
    longest = min(max(2 * seconds, SHORTEST_SECONDS), LONGEST_SECONDS)
    return longest * random.uniform(0.5, 1)  # noqa: S311  # jitter: replicas must not all retry at the same moment
