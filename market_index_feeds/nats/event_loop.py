"""An event loop in a thread of its own, for synchronous code that uses an asynchronous library."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import CancelledError, Future, wait
from threading import RLock, Thread
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
Cleanup: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

PROGRESS_SECONDS: Final = 0.1

CLOSE_SECONDS: Final = 1.0
"""How long `close` waits for the thread of the loop."""


class EventLoop:
    """An event loop that runs in its own thread until it is closed. Any thread may start work on it."""

    def __init__(self, name: str) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._work: set[asyncio.Task[Any]] = set()
        # Reentrant: a signal handler may close the loop while this thread holds the lock.
        self._lock = RLock()
        self._is_closed = False
        self._closing: asyncio.Future[Cleanup] = self._loop.create_future()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    @property
    def is_ours(self) -> bool:
        """Whether it runs in this process. A fork does not copy its thread."""
        return os.getpid() == self._process

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work and return the future of its result. Raises `CancelledError` once the loop is closed."""
        with self._lock:
            if self._is_closed:
                work.close()
                raise CancelledError
            return asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop)

    def run(self, work: Coroutine[Any, Any, T], progress: Callable[[], object] | None = None) -> T:
        """Return the result of the work, or raise its exception. `progress` is called every `PROGRESS_SECONDS`.

        The work is cancelled if `progress` raises, or the calling thread is interrupted.
        """
        future = self.start(work)
        try:
            while progress is not None and not future.done():
                progress()
                wait([future], PROGRESS_SECONDS)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, cleanup: Cleanup, seconds: float = CLOSE_SECONDS) -> None:
        """Cancel the work that runs, run `cleanup`, then end the loop and its thread. Closing twice does no harm.

        A thread that has not ended after that time ends later. In a forked process `close` does nothing: the
        thread exists only in the parent.
        """
        if not self.is_ours:
            return
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._closing.set_result, cleanup)
        self._thread.join(seconds)

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine of the loop runs in a task
        self._work.add(task)
        try:
            return await work
        finally:
            self._work.discard(task)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._until_closed())
        finally:
            # Unlike asyncio.run(), do not wait for pending name look-ups.
            self._loop.close()

    async def _until_closed(self) -> None:
        cleanup = await self._closing
        # Cancel only the work first: its calls of the library, and the cleanup, need the tasks of the library.
        await _cancel(self._work)
        await cleanup()
        await _cancel(asyncio.all_tasks() - {asyncio.current_task()})


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
