"""How long to retry while no server of a bucket answers."""

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
class Patience:
    """How long work on a bucket is retried without progress, in seconds.

    `answer` applies if a server is reachable and does not answer: the servers may still elect a leader.
    """

    connect: float
    answer: float


OPENING: Final = Patience(connect=5.0, answer=20.0)
"""How long opening a bucket is retried. Once it is open, a feed retries for ever."""


async def retry(work: Callable[[], Awaitable[T]], patience: Patience, reached: Callable[[], int] = lambda: 0) -> T:
    """Return the result of the work, retried while no server answers.

    `reached` returns how far the last attempt came. The time starts again after an attempt that came further than all
    before it: a long read is retried as a short one, and work that never gets further ends.

    Raises the last `Unreachable` or `Lost`.
    """
    began, pause, furthest = monotonic(), 0.0, 0
    while True:
        try:
            return await work()
        except (Unreachable, Lost) as error:
            if reached() > furthest:
                began, pause, furthest = monotonic(), 0.0, reached()
            pause = next_backoff(pause)
            seconds = patience.answer if isinstance(error, Unanswered) else patience.connect
            if monotonic() + pause > began + seconds:
                raise
            await asyncio.sleep(pause)
