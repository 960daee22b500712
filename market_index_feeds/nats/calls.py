"""Retries of calls of a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from time import monotonic
from typing import Final, TypeVar

from market_index_feeds.backoff import next_backoff
from market_index_feeds.nats.bucket import NotConnected, Unreachable

T = TypeVar("T")

UNREACHABLE_SECONDS: Final = 5.0
"""How long opening a bucket is retried while no server is reachable."""

ELECTION_SECONDS: Final = 20.0
"""How long opening a bucket is retried while servers are reachable, but may still have to elect a leader."""


async def retried(work: Callable[[], Awaitable[T]], seconds: float, unreachable_seconds: float = inf) -> T:
    """Return the result of the work, retried with backoff while it raises `Unreachable`, for some seconds.

    While no server is reachable, `unreachable_seconds` is the limit, if it is shorter.

    Raises the last `Unreachable`, and any other error.
    """
    began, backoff = monotonic(), 0.0
    while True:
        try:
            return await work()
        except Unreachable as error:
            backoff = next_backoff(backoff)
            limit = min(seconds, unreachable_seconds) if isinstance(error, NotConnected) else seconds
            if monotonic() + backoff > began + limit:
                raise
            await asyncio.sleep(backoff)
