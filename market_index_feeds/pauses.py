"""How long to rest between one attempt and the next."""

from __future__ import annotations

import random
from typing import Final

SHORTEST_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 2.0


def next_pause(pause: float) -> float:
    """Return the pause after this one, in seconds: about twice as long, and never quite the same."""
    longest = min(max(2 * pause, SHORTEST_SECONDS), LONGEST_SECONDS)
    return longest * random.uniform(0.5, 1)  # noqa: S311  # so that replicas do not all come back at the same moment
