"""The lock that allows only one publisher of a file to write at a time."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final
from weakref import WeakSet

from market_index_feeds.file_lock import try_lock, unlock

_RETRY_SECONDS: Final = 0.001

_OPEN_FLAGS: Final = os.O_RDWR | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))


class Busy(Exception):
    """Another store held the lock until the timeout of the caller."""


class WriterLock:
    """An exclusive lock on a file beside the store. While it is held, no other store object in any process writes.

    SQLite's own lock is not sufficient: it is released before a checkpoint, and before SQLite 3.51.3 a checkpoint could
    damage the file if another connection wrote at the same time.

    A process that can open the lock file can hold the lock, and block all publishers. So the lock file has the owner
    and group of the store, and only users who may write the store may open it.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = _open(Path(f"{path}-lock"), path.stat())
        _LOCKS.add(self)

    @contextmanager
    def held(self, wait: float) -> Iterator[None]:
        """Hold the lock. Raises `Busy` if it is not free within `wait` seconds."""
        deadline = monotonic() + wait
        try:
            while not try_lock(self._descriptor):
                if monotonic() >= deadline:
                    raise Busy
                sleep(_RETRY_SECONDS)
            yield
        finally:
            with suppress(ValueError):  # closed in a forked process
                unlock(self._descriptor)

    def close(self) -> None:
        """Close the lock file. It stays on disk. Closing twice does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _open(path: Path, store: os.stat_result) -> int:
    try:
        descriptor = os.open(path, _OPEN_FLAGS | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, f"{path.name} must be a regular file, got a link") from None
        raise
    try:
        _restrict(descriptor, store)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


_LOCKS: Final[WeakSet[WriterLock]] = WeakSet()


def _close_locks() -> None:
    """Close the locks in a forked process, which shares them and would hold them until its end."""
    for lock in list(_LOCKS):
        lock.close()


if sys.platform == "win32":  # pragma: no cover  # not tried: SQLite's own lock is all there is

    def _restrict(_descriptor: int, _store: os.stat_result) -> None:
        pass

else:
    os.register_at_fork(after_in_child=_close_locks)

    def _restrict(descriptor: int, store: os.stat_result) -> None:
        """Allow only users who may write the store to open the lock file."""
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "the lock file must be a regular file")
        may_write = store.st_mode & 0o222
        mode = may_write | may_write << 1
        # Skip files of other users, and files with several names: they may be hard links to any file of this user.
        if status.st_uid == os.geteuid() and status.st_nlink == 1 and stat.S_IMODE(status.st_mode) != mode:
            with suppress(PermissionError):  # this user is not in the group of the store
                os.fchown(descriptor, store.st_uid if status.st_uid == 0 else -1, store.st_gid)
            os.fchmod(descriptor, mode)
