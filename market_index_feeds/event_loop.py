"""Runs asynchronous code for synchronous code: an event loop in a thread of its own, which runs only while asked.

So the thread of the caller may run another event loop, also one that is not of asyncio, and no signal handler of the
caller is touched. While the caller does not ask, nothing is received: a slow caller gets fewer versions, not a queue.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final, TypeVar

from market_index_feeds.source import Progress

T = TypeVar("T")

STOP_SECONDS: Final = 0.1
"""The maximum delay until a wait notices that it is to stop."""


class EventLoop:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._task: Task[Any] | None = None
        self._calls = SimpleQueue[Callable[[], None] | None]()
        # A daemon: a program that does not close its feeds can end.
        Thread(target=self._serve, name="event loop of a feed", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work. If an exception interrupts the caller, the work is cancelled."""

        async def tracked() -> T:
            self._task = asyncio.current_task()
            return await work

        future = self._called(partial(self._runner.run, tracked()))
        try:
            return future.result()
        except BaseException:
            if not future.done() and self._task is not None:
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
            raise

    def close(self) -> None:
        """Close the loop, and end the thread."""
        self._called(self._runner.close).result()
        self._calls.put(None)

    def _called(self, call: Callable[[], T]) -> Future[T]:
        future = Future[T]()

        def answer() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  # the caller raises it
                future.set_exception(error)

        self._calls.put(answer)
        return future

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # or the last version stays in memory


def pulled(items: AsyncGenerator[T, None], stop: Event, progress: Progress | None) -> Generator[T, None, None]:
    """Yield what an endless asynchronous generator yields, until `stop` is set. `progress` is called before the first.

    Each item may come from another task, so no timeout or task group may contain a `yield`.
    """
    loop = EventLoop()
    asked: asyncio.Future[T] | None = None

    async def ask() -> asyncio.Future[T]:
        nonlocal asked
        asked = future = asked or asyncio.ensure_future(anext(items))
        await asyncio.wait({future}, timeout=STOP_SECONDS)
        return future

    async def close() -> None:
        if asked is not None:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        await items.aclose()

    try:
        while not stop.wait(0):
            future = loop.run(ask())
            if future.done():
                asked = progress = None
                yield future.result()
            elif progress is not None:
                progress(0, 0)
    finally:
        loop.run(close())
        loop.close()
