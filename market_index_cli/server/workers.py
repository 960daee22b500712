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

from market_index_cli.logs import LOG

RESTART_SECONDS: Final = 1.0
"""Minimum time between two starts of a worker."""

_POLL_SECONDS: Final = 0.2

Work: TypeAlias = Callable[[socket.socket, int, Callable[[], None]], object]
"""The function of a worker, which must be picklable. It serves the socket until a signal ends it.

Its second argument is the number of the worker, from 0. It calls the third one once it serves. What is pickled must be
small: a worker that dies while it reads a pipe that is full would block the supervisor.
"""


def supervise(
    work: Work, listener: socket.socket, workers: int, timeout: float, on_ended: Callable[[int], object]
) -> int:
    """Run `work` in `workers` processes until a signal ends them. Return the exit code of this process.

    A worker that ends is replaced, `RESTART_SECONDS` after its start at the earliest. If one fails before any has
    served, all are ended and its exit code is returned. Workers have `timeout` seconds to end, then they are killed.
    `on_ended` is called with the number of a worker that has ended.
    """
    # A forked process would inherit locks that other threads hold, and file locks of SQLite.
    spawning = multiprocessing.get_context("spawn")
    ensure_running()  # otherwise the start of the first worker would do it, and unblock SIGINT
    # Without a lock: a worker that is killed could hold it.
    has_served = spawning.RawValue("b", 0)
    running: dict[int, BaseProcess] = {}
    next_start = dict.fromkeys(range(workers), -inf)
    ending: list[int] = []
    # A handler that raises could lose a worker that is being started.
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: ending.append(0))
    try:
        while not ending:
            for number in [one for one, time in next_start.items() if one not in running and time <= monotonic()]:
                next_start[number] = monotonic() + RESTART_SECONDS
                process = spawning.Process(
                    target=_in_worker, args=(work, listener, number, has_served, timeout), daemon=True
                )
                try:
                    # A worker inherits this: Ctrl-C in a terminal would raise in the middle of its imports.
                    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                    process.start()
                except OSError as error:  # too many open files or processes
                    LOG.error("a worker cannot be started: %s", error)
                else:
                    running[number] = process
                finally:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            wait([process.sentinel for process in running.values()], _POLL_SECONDS)
            for number, ended in list(running.items()):
                if ended.exitcode is None:
                    continue
                if ended.exitcode > 0 and not has_served.value:
                    return ended.exitcode
                LOG.warning("worker %d ended (exit code %d); starting another", ended.pid, ended.exitcode)
                del running[number]
                on_ended(number)
        return 0
    finally:
        _end(list(running.values()), timeout)


def _end(processes: list[BaseProcess], timeout: float) -> None:
    """End the processes, and kill those that exceed the timeout."""
    for process in processes:
        process.terminate()
    deadline = monotonic() + timeout
    for process in processes:
        process.join(max(deadline - monotonic(), 0))
        process.kill()
        process.join()


def _in_worker(work: Work, listener: socket.socket, number: int, has_served: Any, timeout: float) -> None:
    # The supervisor, which got the same signal, ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=_end_with_parent, args=(timeout,), daemon=True).start()
    work(listener, number, lambda: setattr(has_served, "value", 1))


def _end_with_parent(timeout: float) -> None:
    """End this process when its supervisor has ended, for any reason."""
    # There is a parent: the supervisor started this process.
    cast(BaseProcess, multiprocessing.parent_process()).join()
    os.kill(os.getpid(), signal.SIGTERM)
    # Without a supervisor, a worker that does not end must kill itself.
    sleep(timeout)
    os._exit(1)
