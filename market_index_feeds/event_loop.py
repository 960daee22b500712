"""Runs asynchronous code for synchronous code, in an event loop that has a thread of its own.

So the thread of the caller may run another event loop, also one that is not of asyncio, and no signal handler of the
caller is touched.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent import futures
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any, Final, TypeVar

from market_index_feeds.source import Progress

T = TypeVar("T")

STOP_SECONDS: Final = 0.1
"""The maximum delay until a wait notices that it is to stop."""


class EventLoop:
    """An event loop in its own thread, until it is closed."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()
        started = Future[asyncio.AbstractEventLoop]()
        # A daemon: a program that does not close its feeds can end.
        self._thread = Thread(
            target=lambda: asyncio.run(self._serve(started)), name="event loop of a feed", daemon=True
        )
        self._thread.start()
        self._loop = started.result()

    @property
    def is_running(self) -> bool:
        """Whether its thread runs: not at the end of the program, and not in a forked process."""
        return self._thread.is_alive() and not sys.is_finalizing()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start work in the loop, and return its future result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work. If an exception interrupts the caller, the work is cancelled."""
        future = self.start(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel all work, close all asynchronous generators, and end the thread."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    async def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        started.set_result(asyncio.get_running_loop())
        await self._closing.wait()


def pulled(items: AsyncGenerator[T, None], stop: Event, progress: Progress | None) -> Generator[T, None, None]:
    """Yield what an endless asynchronous generator yields, until `stop` is set. `progress` is called before the first.

    Each item comes from another task, so no timeout or task group may contain a `yield`.
    """
    loop = EventLoop()
    running: asyncio.Task[Any] | None = None
    asked: Future[T] | None = None

    async def next_item() -> T:
        nonlocal running
        running = asyncio.current_task()
        return await anext(items)

    async def close() -> None:
        if running is not None:
            running.cancel()
            await asyncio.wait({running})
        await items.aclose()

    try:
        while not stop.wait(0):
            asked = asked or loop.start(next_item())
            futures.wait({asked}, STOP_SECONDS)
            if asked.done():
                found, asked, progress = asked.result(), None, None
                yield found
            elif progress is not None:
                progress(0, 0)
    finally:
        # At the end of the program, or in a forked process, its thread does not run any more.
        if loop.is_running:
            loop.run(close())
            loop.close()
