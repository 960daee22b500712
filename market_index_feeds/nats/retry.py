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
    """How long work on a bucket is retried, in seconds.

    `answer` applies if a server is reachable and does not answer: the servers may still elect a leader.
    """

    connect: float
    answer: float


OPENING: Final = Patience(connect=5.0, answer=20.0)
"""How long opening a bucket is retried. Once it is open, a feed retries for ever."""


async def retry(work: Callable[[], Awaitable[T]], patience: Patience) -> T:
    """Return the result of the work, retried while no server answers. Raises the last `Unreachable` or `Lost`."""
    began, pause = monotonic(), 0.0
    while True:
        try:
            return await work()
        except (Unreachable, Lost) as error:
            pause = next_backoff(pause)
            seconds = patience.answer if isinstance(error, Unanswered) else patience.connect
            if monotonic() + pause > began + seconds:
                raise
            await asyncio.sleep(pause)
