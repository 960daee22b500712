"""Retries work on a bucket while no server answers, with backoff and a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, TypeVar

from attrs import frozen

from market_index_feeds.backoff import next_backoff
from market_index_feeds.nats.errors import Lost, Unanswered, Unreachable

T = TypeVar("T")


@frozen
class RetryTimeouts:
    """How long work on a bucket is retried without progress, in seconds.

    `answer` applies if a server is reachable but does not answer: the servers may still elect a leader. `connect`
    applies if no server is reachable.
    """

    connect: float
    answer: float


OPENING: Final = RetryTimeouts(connect=5.0, answer=20.0)
"""How long opening a bucket is retried. Once it is open, a feed retries without end."""


async def retry(
    work: Callable[[], Awaitable[T]], timeouts: RetryTimeouts, progress: Callable[[], int] = lambda: 0
) -> T:
    """Return the result of the work, retried while no server answers.

    `progress` returns how far the last attempt came. The timeout restarts after an attempt that came further than all
    attempts before it. So a long read may be interrupted more often, and work without progress ends.

    Raises the last `Unreachable` or `Lost`.
    """
    began, backoff, furthest = monotonic(), 0.0, 0
    while True:
        try:
            return await work()
        except (Unreachable, Lost) as error:
            if progress() > furthest:
                began, backoff, furthest = monotonic(), 0.0, progress()
            backoff = next_backoff(backoff)
            seconds = timeouts.answer if isinstance(error, Unanswered) else timeouts.connect
            if monotonic() + backoff > began + seconds:
                raise
            await asyncio.sleep(backoff)
