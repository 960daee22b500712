"""The threads and asyncio tasks that wait for the next change of a live index.

Theory of operation
    Waiters form groups: all threads are one, and the tasks of each event loop are one. A group is used for one change.
    The thread that makes the change wakes each group with one call, however many wait, and then removes it. A signal
    handler may interrupt it at any point, and may raise: the next change wakes the groups that are left. There is no
    lock that a handler could find held, because each step is one atomic operation of a dictionary.

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

    __slots__ = ("_gates", "_tasks")

    def __init__(self) -> None:
        self._gates: Final[dict[_Gate, None]] = {}
        self._tasks: Final[dict[_Tasks, None]] = {}

    def wake(self) -> None:
        """Wake all that wait. Any thread and any signal handler may call it."""
        if self._gates:
            for gate in list(self._gates):
                gate.wake()
                self._gates.pop(gate, None)
        if self._tasks:
            for tasks in list(self._tasks):
                tasks.wake()
                self._tasks.pop(tasks, None)

    def wait(self, changed: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait in this thread for a change, at most so many seconds."""
        until = inf if timeout is None else monotonic() + timeout
        while not changed() and (left := until - monotonic()) > 0:
            gate = next((one for one in list(self._gates) if not one.is_woken), None) or _Gate()
            self._gates[gate] = None
            if not changed():
                gate.wait(min(left, TIMEOUT_MAX))

    async def wait_in_task(self, changed: Callable[[], bool]) -> None:
        """Wait in this task for a change. Raises `RuntimeError` if no asyncio event loop runs in this thread."""
        from asyncio import get_running_loop  # noqa: PLC0415  # see above

        loop = get_running_loop()
        while not changed():
            await self._next_change(loop, changed)

    async def _next_change(self, loop: AbstractEventLoop, changed: Callable[[], bool]) -> None:
        of_loop = (one for one in list(self._tasks) if one.loop is loop and not one.is_woken)
        tasks = next(of_loop, None) or _Tasks(loop)
        self._tasks[tasks] = None
        future = loop.create_future()
        tasks.futures.add(future)
        try:
            if not changed():
                await future
        finally:
            tasks.futures.discard(future)
            # Only this thread adds tasks of this loop.
            if not tasks.futures:
                self._tasks.pop(tasks, None)


@final
class _Gate:
    """A gate for threads. Once it is open, it stays open."""

    __slots__ = ("_lock", "is_woken")

    def __init__(self) -> None:
        self.is_woken, self._lock = False, Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        try:
            self._lock.acquire(timeout=seconds)
        finally:
            if self.is_woken:
                # Not in a function: a signal handler may raise when one is entered, while this thread holds the lock.
                try:  # noqa: SIM105  # see the line above
                    self._lock.release()
                except RuntimeError:  # another thread has released it
                    pass

    def wake(self) -> None:
        self.is_woken = True
        with suppress(RuntimeError):  # it is open already
            self._lock.release()


@final
class _Tasks:
    """The tasks of one event loop."""

    __slots__ = ("futures", "is_woken", "loop")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop: Final = loop
        self.is_woken = False
        self.futures: set[Future[None]] = set()

    def wake(self) -> None:
        self.is_woken = True
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._wake_in_loop)

    def _wake_in_loop(self) -> None:
        for future in self.futures:
            if not future.done():
                future.set_result(None)
