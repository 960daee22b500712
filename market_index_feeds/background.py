"""An event loop in a thread of its own, for what is asynchronous below and is not above."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from threading import Event, Thread
from typing import Any, Final, TypeVar

T = TypeVar("T")

_TELLING_SECONDS: Final = 0.1


class Background:
    """An event loop that runs until it is closed. Any thread may have it run something, one with a loop as well."""

    def __init__(self, name: str) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._farewell: Callable[[], Coroutine[Any, Any, None]] = _nothing
        self._running = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._running.wait()

    @property
    def is_ours(self) -> bool:
        """Whether it runs in this process: its thread does not come along when that is forked."""
        return os.getpid() == self._process

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin some work, and return what its result comes by."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], telling: Callable[[], object] | None = None) -> T:
        """Do some work and return its result, or raise what it raises; `telling` is called now and then meanwhile.

        What `telling` raises, or an interrupt, ends the work.
        """
        future = self.start(work)
        try:
            while telling is not None and not future.done():
                telling()
                wait([future], _TELLING_SECONDS)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End whatever still runs, then do the `farewell`, then end the loop. Once it is closed, nothing more runs."""

        def end() -> None:
            self._farewell = farewell
            self._ended.set()

        self._loop.call_soon_threadsafe(end)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._until_ended())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            # Not waiting for names that are still being looked up.
            self._loop.close()

    async def _until_ended(self) -> None:
        self._running.set()
        await self._ended.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._farewell()


async def _nothing() -> None:
    """There is nothing to be done at the end."""
