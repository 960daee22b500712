"""Runs asynchronous code for synchronous code: the event loop runs only while the caller waits for it."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any, Final, TypeVar

from market_index_feeds.source import Progress

T = TypeVar("T")

STOP_SECONDS: Final = 0.1
"""The maximum delay until a wait notices that it is to stop."""


def blocking(call: Callable[[], T]) -> T:
    """Return the result of a call that runs an event loop until it returns.

    If this thread runs another event loop, as that of a notebook does, the call gets a thread of its own.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_free = True
    else:
        is_free = False
    if is_free:
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def run(runner: asyncio.Runner, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work. The event loop of the runner runs only until then."""
    return blocking(partial(runner.run, work))


def pulled(items: AsyncGenerator[T, None], stop: Event, progress: Progress | None) -> Generator[T, None, None]:
    """Yield what an endless asynchronous generator yields, until `stop` is set. `progress` is called before the first.

    Each item may come from another task, so no timeout or task group may contain a `yield`.
    """
    runner = asyncio.Runner()
    asked: Future[T] | None = None

    async def ask() -> None:
        # Without a result: in the main thread, `Runner.run` makes the `repr` of its task, with all that it returns.
        nonlocal asked
        asked = asked or asyncio.ensure_future(anext(items))
        await asyncio.wait({asked}, timeout=STOP_SECONDS)

    async def close() -> None:
        if asked is not None:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        await items.aclose()

    try:
        while not stop.wait(0):
            run(runner, ask())
            if asked is not None and asked.done():
                future, asked, progress = asked, None, None
                yield future.result()
            elif progress is not None:
                progress(0, 0)
    finally:
        run(runner, close())
        blocking(runner.close)
