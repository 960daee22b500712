"""The threads and asyncio tasks that wait for the next change of a live index.

Theory of operation
    Waiters form groups: all threads are one, and the tasks of each event loop are one. A group is used for one change.
    The thread that makes the change removes each group from its dictionary, and wakes it with one call, however many
    wait. There is no lock that a signal handler could find held: `setdefault` and `pop` of a dictionary are atomic.

    A waiter first joins a group, then checks again whether the index has changed, then waits. So a change is either
    seen by the check, or made later by a thread that finds the group.

    The group of threads is a gate, a lock that is held until the change. A thread that passes releases it for the next
    one. To release one lock for each of 1,000 threads took the publisher 65 to 130 ms, because they compete with it for
    the interpreter; the gate takes 0.01 to 0.03 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from threading import TIMEOUT_MAX, Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:  # asyncio loads 60 modules; a program whose tasks wait has loaded it
    from asyncio import AbstractEventLoop, Future


@final
class Waiters:
    """All that waits for a change of one live index. Each waiter has a function `changed`: whether it has happened."""

    __slots__ = ("_gates", "_loops")

    def __init__(self) -> None:
        self._gates: Final[dict[None, _Gate]] = {}
        self._loops: Final[dict[AbstractEventLoop, _Tasks]] = {}

    def wake(self) -> None:
        """Wake all that wait. Any thread and any signal handler may call it."""
        if self._gates and (gate := self._gates.pop(None, None)) is not None:
            gate.open()
        if self._loops:
            for loop in list(self._loops):
                if (tasks := self._loops.pop(loop, None)) is not None:
                    tasks.wake()

    def wait(self, changed: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait in this thread for a change, at most so many seconds."""
        until = inf if timeout is None else monotonic() + timeout
        while not changed() and (left := until - monotonic()) > 0:
            gate = self._gates.setdefault(None, _Gate())
            if not changed():
                gate.wait(min(left, TIMEOUT_MAX))

    async def wait_in_task(self, changed: Callable[[], bool]) -> None:
        """Wait in this task for a change. Raises `RuntimeError` if no asyncio event loop runs in this thread."""
        from asyncio import get_running_loop  # noqa: PLC0415  # see above

        loop = get_running_loop()
        while not changed():
            await self._next_change(loop, changed)

    async def _next_change(self, loop: AbstractEventLoop, changed: Callable[[], bool]) -> None:
        tasks = self._loops.setdefault(loop, _Tasks(loop))
        future = loop.create_future()
        tasks.futures.add(future)
        try:
            if not changed():
                await future
        finally:
            tasks.futures.discard(future)
            # Only this thread puts groups of this loop into the dictionary.
            if not tasks.futures and self._loops.get(loop) is tasks:
                self._loops.pop(loop, None)


@final
class _Gate:
    """A gate for threads. It opens once, and stays open."""

    __slots__ = ("_is_open", "_lock")

    def __init__(self) -> None:
        self._is_open, self._lock = False, Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        try:
            self._lock.acquire(timeout=seconds)
        finally:
            # Also after a KeyboardInterrupt, which may come while this thread holds the lock of the open gate.
            if self._is_open:
                self._release()

    def open(self) -> None:
        self._is_open = True
        self._release()

    def _release(self) -> None:
        with suppress(RuntimeError):  # another thread has released it
            self._lock.release()


@final
class _Tasks:
    """The tasks of one event loop."""

    __slots__ = ("_loop", "futures")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.futures: set[Future[None]] = set()

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake_in_loop)

    def _wake_in_loop(self) -> None:
        for future in self.futures:
            if not future.done():
                future.set_result(None)
