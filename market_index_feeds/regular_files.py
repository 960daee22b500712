"""Opens regular files only, without blocking. Others may replace what is at a path at any time."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from io import FileIO
from pathlib import Path


def open_without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking, and return its descriptor. A plain `open` of a pipe waits for a writer."""
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def open_regular(path: Path) -> FileIO:
    """Open a regular file for reading. Raises `OSError`, also for any other kind of file."""
    # Checked before it is opened: opening a device may have an effect, and opening a pipe releases its writer.
    require_regular(path.stat())
    with ExitStack() as stack:
        file = stack.enter_context(FileIO(path, opener=open_without_waiting))
        # Checked again: it may have been replaced in between.
        require_regular(os.fstat(file.fileno()))
        stack.pop_all()
    return file


def require_regular(status: os.stat_result) -> None:
    """Raise `OSError` if the status is not that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it must be a regular file")
