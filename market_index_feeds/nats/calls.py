"""Calls of asynchronous code by synchronous code, and their retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from market_index_feeds.backoff import next_backoff
from market_index_feeds.nats.bucket import Unreachable

T = TypeVar("T")

OPENING_SECONDS: Final = 10.0
"""How long opening a bucket is retried: servers may have to start, and need about 6 seconds to elect a leader."""


def blocking(call: Callable[[], T]) -> T:
    """Return the result of a call that runs an event loop until it returns.

    If this thread runs another event loop, as that of a notebook does, the call gets a thread of its own.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def run(runner: asyncio.Runner, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work. The event loop of the runner runs only until then."""
    return blocking(partial(runner.run, work))


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
