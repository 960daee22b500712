"""Worker processes that serve one address, and the supervisor that restarts them.

uvicorn's own supervisor is not used: it requires an app that is given as an import string, it restarts a worker that
cannot open its feed without end, and its workers survive when it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from threading import Thread
from time import monotonic, sleep
from typing import Final, TypeAlias, cast

from market_index_cli.descriptors import open_standard_streams
from market_index_cli.logs import LOG
from market_index_cli.signals import ended_by_signals

RESTART_SECONDS: Final = 1.0
"""Minimum time between two starts of a worker."""

_POLL_SECONDS: Final = 0.2

Work: TypeAlias = Callable[[socket.socket, Callable[[], object], int], None]
"""The function of a worker, which must be picklable. It serves the socket until a signal ends it.

It calls its second argument once it serves. The third one is its number: the lowest that no running worker has, from 0.
"""


def supervise(
    work: Work,
    listener: socket.socket,
    workers: int,
    timeout: float,
    *,
    restart_seconds: float = RESTART_SECONDS,
    on_ended: Callable[[int], object] | None = None,
) -> int:
    """Run `work` in `workers` processes until a signal ends them. Return the exit code of this process.

    A worker that ends is replaced, `restart_seconds` after its start at the earliest. If one of the initial workers
    fails before it serves, all workers are ended and its exit code is returned. Workers have `timeout` seconds to end,
    then they are killed.

    `on_ended` is called with the number of a worker that has ended, at least once and before the number is given to
    another one.
    """
    supervisor = _Supervisor(work, listener, timeout, restart_seconds, on_ended)
    with ended_by_signals(supervisor.stop):
        try:
            return supervisor.run(workers)
        finally:
            supervisor.end()


class _Supervisor:
    def __init__(
        self,
        work: Work,
        listener: socket.socket,
        timeout: float,
        restart_seconds: float,
        on_ended: Callable[[int], object] | None,
    ) -> None:
        self._work = work
        self._listener = listener
        self._timeout = timeout
        self._restart_seconds = restart_seconds
        self._on_ended = on_ended
        # The monotonic time of each worker's start, an event that is set once it serves, and its number.
        self._workers: dict[BaseProcess, tuple[float, Event, int]] = {}
        self._should_exit = False
        # A forked process would inherit locks that other threads hold, and file locks of SQLite.
        self._spawning = multiprocessing.get_context("spawn")

    def stop(self) -> None:
        self._should_exit = True

    def run(self, workers: int) -> int:
        for _ in range(workers):
            self._start()
        first = set(self._workers)
        while not self._should_exit:
            for worker, (started, served, number) in list(self._workers.items()):
                if worker.exitcode is None:
                    continue
                if worker in first and worker.exitcode > 0 and not served.is_set():
                    return worker.exitcode
                if self._on_ended is not None:
                    self._on_ended(number)
                if monotonic() >= started + self._restart_seconds:
                    del self._workers[worker]
                    LOG.warning("worker %s ended (%s); starting another", worker.pid, _ending(worker.exitcode))
                    self._start()
            sleep(_POLL_SECONDS)
        return 0

    def end(self) -> None:
        """End the remaining workers, and kill those that exceed the timeout."""
        for worker in self._workers:
            worker.terminate()
        deadline = monotonic() + self._timeout
        for worker in self._workers:
            worker.join(max(deadline - monotonic(), 0))
            if worker.exitcode is None:
                worker.kill()
                worker.join()

    def _start(self) -> None:
        if not self._should_exit:
            served = self._spawning.Event()
            taken = {number for _, _, number in self._workers.values()}
            number = min(set(range(len(taken) + 1)) - taken)
            arguments = self._work, self._listener, served, number, self._timeout
            worker = self._spawning.Process(target=_in_worker, args=arguments, daemon=True)
            worker.start()
            self._workers[worker] = monotonic(), served, number


def _ending(exit_code: int) -> str:
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _in_worker(work: Work, listener: socket.socket, served: Event, number: int, timeout: float) -> None:
    open_standard_streams()
    Thread(target=_end_with_parent, args=(timeout,), daemon=True).start()
    work(listener, served.set, number)


def _end_with_parent(timeout: float) -> None:
    """End this process when its supervisor has ended, for any reason."""
    # There is a parent: the supervisor started this process.
    cast(BaseProcess, multiprocessing.parent_process()).join()
    os.kill(os.getpid(), signal.SIGTERM)
    # Without a supervisor, a worker that does not end must kill itself.
    sleep(timeout)
    os._exit(1)
