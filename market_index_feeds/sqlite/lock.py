"""The lock that the publishers of one file take turns by."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final
from weakref import WeakSet

_RETRY_SECONDS: Final = 0.001


class Busy(Exception):
    """Another store held the lock for as long as the caller was willing to wait."""


class WriterLock:
    """Keeps every other store of a file from writing, in any process: a lock on a file beside it.

    SQLite's own lock is not enough: it is released before a checkpoint, and before SQLite 3.51.3 a checkpoint could
    damage the file when another connection wrote at that instant.
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}-lock")
        self._descriptor = self._open()
        _LOCKS.add(self)

    @contextmanager
    def held(self, wait: float) -> Iterator[None]:
        """Hold the lock. Raises `Busy` if it is not free within `wait` seconds."""
        deadline = monotonic() + wait
        try:
            while not (_locked(self._descriptor) and self._is_in_place()):
                if monotonic() >= deadline:
                    raise Busy
                sleep(_RETRY_SECONDS)
            yield
        finally:
            with suppress(ValueError):  # closed in a forked process
                _unlock(self._descriptor)

    def close(self) -> None:
        """Close the lock file. It stays on disk."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)

    def _is_in_place(self) -> bool:
        """Whether other stores find the same lock file; if not, open the one that they find."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                return True
        os.close(self._descriptor)
        self._descriptor = self._open()
        return False


_LOCKS: Final[WeakSet[WriterLock]] = WeakSet()


def _close_locks() -> None:
    """Close the locks in a forked process: it shares them, and would hold them for as long as it lives."""
    for lock in list(_LOCKS):
        lock.close()


if sys.platform == "win32":  # pragma: no cover  # not tried: SQLite's own lock is all there is

    def _locked(_: int) -> bool:
        return True

    def _unlock(_: int) -> None:
        pass

else:
    import fcntl

    os.register_at_fork(after_in_child=_close_locks)

    def _locked(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
