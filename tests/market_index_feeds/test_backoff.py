"""The backoff between retries."""

from __future__ import annotations

from itertools import pairwise

from market_index_feeds.backoff import LONGEST_SECONDS, SHORTEST_SECONDS, next_backoff


def test_it_grows_with_jitter_up_to_a_limit():
    waits = [0.0]
    for _ in range(50):
        waits.append(next_backoff(waits[-1]))
    assert waits[1] >= SHORTEST_SECONDS / 2
    assert all(later <= max(2 * before, SHORTEST_SECONDS) for before, later in pairwise(waits))
    assert LONGEST_SECONDS / 2 <= waits[-1] <= LONGEST_SECONDS
    assert len(set(waits[-10:])) > 1
