"""Worker processes that accept connections from one socket, and the supervisor that replaces those that end.

uvicorn's own supervisor is not used: it requires an app that is given as an import string, and its workers survive when
it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from math import inf
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from threading import Thread
from time import monotonic, sleep
from typing import Any, Final, TypeAlias, cast

from attrs import define

from market_index_cli.errors import EXIT_USAGE, Failed
from market_index_cli.logs import LOG

RESTART_SECONDS: Final = 1.0
"""Minimum time between two starts of a worker."""

_POLL_SECONDS: Final = 0.2

Work: TypeAlias = Callable[[socket.socket, int], object]
"""The function of a worker, which must be picklable. It serves the socket until a signal ends it.

Its second argument is the number of the worker, from 0. What is pickled must be small: a worker that dies while it
reads a pipe that is full would block the supervisor.
"""


@define(eq=False)
class Worker:
    """One of the workers: it has a process, or waits for its next start."""

    number: int
    process: BaseProcess | None = None
    next_start: float = -inf
    """The monotonic time before which it is not started again."""


# A forked process would inherit locks that other threads hold, and file locks of SQLite.
_SPAWNING: Final = multiprocessing.get_context("spawn")


def shared_buffer(size: int) -> Any:
    """Return memory that is shared with workers, and start the helper process that all of them need.

    Raises `Failed` if the operating system does not allow one of them.
    """
    try:
        ensure_running()  # otherwise the start of the first worker would do it, and unblock SIGINT
        # Without a lock: a worker that is killed could hold it.
        return _SPAWNING.RawArray("B", size)
    except OSError as error:
        needed = "--workers needs more processes, and a writable /dev/shm or temporary folder"
        raise Failed(EXIT_USAGE, f"{needed}: {error.strerror or error}") from None


def supervise(
    work: Work,
    listener: socket.socket,
    workers: int,
    timeout: float,
    on_ended: Callable[[int], bool],
) -> int:
    """Run `work` in `workers` processes until a signal ends them. Return the exit code of this process.

    A worker that ends is replaced, `RESTART_SECONDS` after its start at the earliest. If one fails before any has
    served, all are ended and its exit code is returned. Workers have `timeout` seconds to end, then they are killed,
    and at once after a second SIGINT. `on_ended` is called with the number of a worker that has ended, and returns
    whether any worker serves or has served just before.
    """
    team, has_served = [Worker(number) for number in range(workers)], False
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        # A handler that raises could lose a worker that is being started.
        signal.signal(number, lambda number, _: received.append(number))
    try:
        while not received:
            for worker in team:
                if worker.process is None and worker.next_start <= monotonic():
                    _start(worker, (work, listener, worker.number, timeout))
            wait([worker.process.sentinel for worker in team if worker.process], _POLL_SECONDS)
            for worker in team:
                if worker.process is None or worker.process.exitcode is None:
                    continue
                process_id, exit_code, worker.process = worker.process.pid, worker.process.exitcode, None
                has_served |= on_ended(worker.number)
                if exit_code > 0 and not has_served:
                    LOG.error("worker %d ended (exit code %d) before it served", process_id, exit_code)
                    return exit_code
                LOG.warning("worker %d ended (exit code %d); starting another", process_id, exit_code)
        return 0
    finally:
        _end([worker.process for worker in team if worker.process], timeout, received)


def _start(worker: Worker, arguments: tuple[Any, ...]) -> None:
    """Start the process of a worker. If the operating system cannot, it is tried again later."""
    worker.next_start = monotonic() + RESTART_SECONDS
    process = _SPAWNING.Process(target=_in_worker, args=arguments, daemon=True)
    try:
        # A worker inherits this: Ctrl-C in a terminal would raise in the middle of its imports.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        process.start()
        worker.process = process
    except OSError as error:  # too many open files or processes
        LOG.error("a worker cannot be started: %s", error)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end(processes: list[BaseProcess], timeout: float, received: list[int]) -> None:
    """End the processes, and kill those that exceed the timeout. As in uvicorn, a second Ctrl-C does not wait."""
    for process in processes:
        process.terminate()
    deadline = monotonic() + timeout
    while left := [one.sentinel for one in processes if one.exitcode is None]:
        if monotonic() >= deadline or signal.SIGINT in received[1:]:
            break
        wait(left, _POLL_SECONDS)
    for process in processes:
        process.kill()
        process.join()


def _in_worker(work: Work, listener: socket.socket, number: int, timeout: float) -> None:
    # The supervisor, which got the same signal, ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=_end_with_parent, args=(timeout,), daemon=True).start()
    work(listener, number)


def _end_with_parent(timeout: float) -> None:
    """End this process when its supervisor has ended, for any reason."""
    # There is a parent: the supervisor started this process.
    cast(BaseProcess, multiprocessing.parent_process()).join()
    os.kill(os.getpid(), signal.SIGTERM)
    # Without a supervisor, a worker that does not end must kill itself.
    sleep(timeout)
    os._exit(1)
