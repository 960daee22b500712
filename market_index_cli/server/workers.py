"""Worker processes that serve one address, and the supervisor that restarts them.

uvicorn's own supervisor is not used. Checked with 0.54:
- It requires an app that is given as an import string.
- Its workers survive when it is killed.
- At SIGHUP it waits 5 seconds for the replacement of a worker. A longer timeout also delays the restart of a worker
  that hangs. Until the old worker has ended, however long that takes, it replaces no other worker.
- A worker that is replaced closes connections while requests are on their way: see `http_server.DRAIN_SECONDS`.

A restart by SIGHUP
    One worker is replaced at a time, so one more index than usual is in memory. The replacement starts, and once it
    serves, the old worker gets SIGTERM. All workers accept from one socket, which stays open, so no connection is
    rejected. A replacement that ends before it serves stops the restart, and the old workers continue.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from math import inf
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from threading import Thread
from time import monotonic, sleep
from typing import Final, TypeAlias, cast

from attrs import define

from market_index_cli.descriptors import open_standard_streams
from market_index_cli.logs import LOG
from market_index_cli.signals import ended_by_signals, ignore_hangups

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
    then they are killed. SIGHUP replaces all workers one after another, so at most one more worker runs.

    `on_ended` is called with the number of a worker that has ended, at least once and before the number is given to
    another one.
    """
    supervisor = _Supervisor(work, listener, timeout, restart_seconds, on_ended)
    with ended_by_signals(supervisor.stop, supervisor.hang_up):
        try:
            return supervisor.run(workers)
        finally:
            supervisor.end()


@define(eq=False)
class _Worker:
    process: BaseProcess
    number: int
    started: float
    """Monotonic time of its start."""
    serves: Event
    """Set once it serves."""
    is_initial: bool = False
    ends_until: float = inf
    """Monotonic time until which it must have ended."""

    @property
    def has_ended(self) -> bool:
        return self.process.exitcode is not None

    def __str__(self) -> str:
        return f"worker {self.process.pid}"

    def end(self, timeout: float) -> None:
        """Send SIGTERM, with a time after which it is killed."""
        self.process.terminate()
        self.ends_until = monotonic() + timeout

    def kill_if_late(self) -> None:
        if monotonic() >= self.ends_until and not self.has_ended:
            self.process.kill()


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
        self._workers: list[_Worker] = []
        # The workers that SIGHUP demands to replace, and the replacement of the first one, until it serves.
        self._outdated: list[_Worker] = []
        self._replacement: _Worker | None = None
        # A worker that was replaced, until it has ended.
        self._retiring: _Worker | None = None
        self._should_exit = False
        self._is_hung_up = False
        # A forked process would inherit locks that other threads hold, and file locks of SQLite.
        self._spawning = multiprocessing.get_context("spawn")

    def stop(self) -> None:
        self._should_exit = True

    def hang_up(self) -> None:
        self._is_hung_up = True

    def run(self, workers: int) -> int:
        for _ in range(workers):
            self._start(is_initial=True)
        while not self._should_exit:
            for worker in [one for one in self._workers if one.has_ended]:
                exit_code = worker.process.exitcode or 0
                if worker.is_initial and exit_code > 0 and not worker.serves.is_set():
                    return exit_code
                self._free_number(worker)
                self._replace_ended(worker)
            self._restart()
            sleep(_POLL_SECONDS)
        return 0

    def end(self) -> None:
        """End the remaining workers, and kill those that exceed the timeout."""
        remaining = self._all_workers()
        for worker in remaining:
            worker.process.terminate()
        deadline = monotonic() + self._timeout
        for worker in remaining:
            worker.process.join(max(deadline - monotonic(), 0))
            if not worker.has_ended:
                worker.process.kill()
                worker.process.join()

    def _replace_ended(self, worker: _Worker) -> None:
        """Replace a worker that ended by itself, or was killed."""
        ending = f"{worker} ended ({_ending(worker.process.exitcode or 0)})"
        if worker in self._outdated and self._replacement is not None:
            LOG.warning("%s; %s takes its place", ending, self._replacement)
            self._adopt_replacement(worker)
        elif monotonic() >= worker.started + self._restart_seconds:
            LOG.warning("%s; starting another", ending)
            self._remove(worker)
            self._start()

    def _restart(self) -> None:
        """Advance a restart by one step, if SIGHUP demands one."""
        if self._is_hung_up:
            self._is_hung_up = False
            LOG.info("SIGHUP: restarting %d workers, one after another", len(self._workers))
            self._outdated = list(self._workers)
        if self._retiring is not None:
            self._retiring.kill_if_late()
            if not self._retiring.has_ended:
                return
            self._free_number(self._retiring)
            self._retiring = None
        replacement = self._replacement
        if replacement is None:
            if self._outdated and not self._should_exit:
                self._replacement = self._spawn()
        elif replacement.serves.is_set():
            self._retiring = self._outdated[0]
            LOG.info("%s serves; ending %s", replacement, self._retiring)
            self._adopt_replacement(self._retiring)
            self._retiring.end(self._timeout)
        elif replacement.has_ended:
            ending = _ending(replacement.process.exitcode or 0)
            LOG.error("%s ended (%s) before it served; restart stopped, old workers continue", replacement, ending)
            self._free_number(replacement)
            self._outdated, self._replacement = [], None

    def _adopt_replacement(self, worker: _Worker) -> None:
        """Let the replacement take the place of a worker."""
        self._remove(worker)
        self._workers += filter(None, [self._replacement])
        self._replacement = None

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        if worker in self._outdated:
            self._outdated.remove(worker)

    def _start(self, *, is_initial: bool = False) -> None:
        if not self._should_exit:
            self._workers.append(self._spawn(is_initial=is_initial))

    def _spawn(self, *, is_initial: bool = False) -> _Worker:
        taken = {worker.number for worker in self._all_workers()}
        number = min(set(range(len(taken) + 1)) - taken)
        serves = self._spawning.Event()
        arguments = self._work, self._listener, serves, number, self._timeout
        process = self._spawning.Process(target=_in_worker, args=arguments, daemon=True)
        process.start()
        return _Worker(process, number, monotonic(), serves, is_initial)

    def _all_workers(self) -> list[_Worker]:
        return [*self._workers, *filter(None, [self._replacement, self._retiring])]

    def _free_number(self, worker: _Worker) -> None:
        """Report that a worker has ended, so that another one may get its number."""
        if self._on_ended is not None:
            self._on_ended(worker.number)


def _ending(exit_code: int) -> str:
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _in_worker(work: Work, listener: socket.socket, served: Event, number: int, timeout: float) -> None:
    # A terminal that is closed sends it to all processes. Only the supervisor handles it.
    ignore_hangups()
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
