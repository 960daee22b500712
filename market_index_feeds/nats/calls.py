"""Retries of calls of a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, TypeVar

from market_index_feeds.backoff import next_backoff
from market_index_feeds.nats.bucket import Unreachable

T = TypeVar("T")

OPENING_SECONDS: Final = 10.0
"""How long opening a bucket is retried: servers may have to start, and need about 6 seconds to elect a leader."""


async def retried(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Return the result of the work, retried with backoff while it raises `Unreachable`, for some seconds.

    Raises the last `Unreachable`, and any other error.
    """
    began, backoff = monotonic(), 0.0
    while True:
        try:
            return await work()
        except Unreachable:
            backoff = next_backoff(backoff)
            if monotonic() + backoff > began + seconds:
                raise
            await asyncio.sleep(backoff)
