"""Several processes that serve one address, looked after by one that does not serve.

uvicorn's own supervisor is for apps named by an import string; it starts a worker that cannot open its feed again and
again, and leaves workers behind when it is killed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from threading import Thread
from time import monotonic, sleep
from typing import Final, TypeAlias, cast

from market_index_http.signals import ended_by_signals

LOG: Final = logging.getLogger("market_index_http")

RESTART_SECONDS: Final = 1.0
"""A worker that ended is started again, but no sooner than so long after its own start."""

_LOOK_SECONDS: Final = 0.2

Work: TypeAlias = Callable[[socket.socket, Callable[[], object]], None]
"""What a worker does with the address until a signal ends it, and calls once it serves. It must be picklable."""


def supervise(work: Work, listener: socket.socket, workers: int, patience: float) -> int:
    """Let so many processes do the work until a signal ends them all; return the exit code for this one.

    A worker that ends without being asked is replaced. One of the first that ends with an exit code of its own before
    it ever served tells that none can: then all are ended, and its code is returned. Workers are given `patience`
    seconds to end.
    """
    supervisor = _Supervisor(work, listener, patience)
    with ended_by_signals(supervisor.stop):
        try:
            return supervisor.run(workers)
        finally:
            supervisor.end()


class _Supervisor:
    def __init__(self, work: Work, listener: socket.socket, patience: float) -> None:
        self._work = work
        self._patience = patience
        self._listener = listener
        # When each was started, and whether it has ever served.
        self._workers: dict[BaseProcess, tuple[float, Event]] = {}
        self._should_exit = False
        # A forked process would share the locks of whatever threads there are, and SQLite's with them.
        self._spawning = multiprocessing.get_context("spawn")

    def stop(self) -> None:
        self._should_exit = True

    def run(self, workers: int) -> int:
        for _ in range(workers):
            self._start()
        first = set(self._workers)
        while not self._should_exit:
            wait([worker.sentinel for worker in self._workers], _LOOK_SECONDS)
            for worker, (started, served) in list(self._workers.items()):
                if self._should_exit or worker.exitcode is None:
                    continue
                if worker in first and worker.exitcode > 0 and not served.is_set():
                    return worker.exitcode
                del self._workers[worker]
                LOG.warning("worker %s ended (%s); another takes its place", worker.pid, _ending(worker.exitcode))
                self._rest_until(started + RESTART_SECONDS)
                self._start()
        return 0

    def end(self) -> None:
        """End what is left of the workers."""
        for worker in self._workers:
            worker.terminate()
        deadline = monotonic() + self._patience
        for worker in self._workers:
            worker.join(max(deadline - monotonic(), 0))
            if worker.exitcode is None:
                worker.kill()
                worker.join()

    def _start(self) -> None:
        if not self._should_exit:
            served = self._spawning.Event()
            told = self._work, self._listener, served, self._patience
            worker = self._spawning.Process(target=_in_worker, args=told, daemon=True)
            worker.start()
            self._workers[worker] = monotonic(), served

    def _rest_until(self, then: float) -> None:
        while True:
            sleep(0.05)
            if self._should_exit or monotonic() >= then:
                return


def _ending(exit_code: int) -> str:
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _in_worker(work: Work, listener: socket.socket, served: Event, patience: float) -> None:
    Thread(target=_end_with_parent, args=(patience,), daemon=True).start()
    work(listener, served.set)


def _end_with_parent(patience: float) -> None:
    """End this process as soon as the one that looks after it is gone, however that ended."""
    # There is a parent: it has started this process.
    cast(BaseProcess, multiprocessing.parent_process()).join()
    os.kill(os.getpid(), signal.SIGTERM)
    # Nobody is left who would see to it that it ends.
    sleep(patience)
    os._exit(1)
