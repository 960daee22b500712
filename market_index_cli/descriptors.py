"""File descriptors of the command: its standard streams, and the limit of open files."""

from __future__ import annotations

import os
import select
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, Final, TextIO

from market_index_cli.errors import OpenFilesLimited, OutputFailed

RESERVED_DESCRIPTORS: Final = 64
"""File descriptors reserved for feeds, stores, logs and the event loop."""

_DESCRIPTORS_PER_WORKER: Final = 2
"""File descriptors that the supervisor has open for each worker."""


def open_files_allowed() -> int:
    """Return the limit of open files (RLIMIT_NOFILE)."""
    sysconf = getattr(os, "sysconf", None)
    open_files: int = sysconf("SC_OPEN_MAX") if sysconf else 1024
    # A negative number means that there is no limit.
    return sys.maxsize if open_files < 0 else open_files


def require_open_files(workers: int = 0) -> None:
    """Raise `OpenFilesLimited` if the limit of open files is too low for a command with this number of workers."""
    required, allowed = RESERVED_DESCRIPTORS + workers * _DESCRIPTORS_PER_WORKER, open_files_allowed()
    if allowed < required:
        raise OpenFilesLimited(
            f"the limit of open files must be at least {required}, got {allowed}: raise it (ulimit -n {4 * required})"
        )


def open_standard_streams() -> None:
    """Open closed standard streams, so that no other file gets their numbers, and replace `sys.stdout` and `stderr`.

    The first write to standard output that fails raises `OutputFailed`. What cannot be written to standard error is
    lost: a server whose log is on a full disk continues to serve.
    """
    # For the wrong direction, so that using a closed stream is an error. Workers inherit them.
    for descriptor, direction in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, direction), True)  # noqa: FBT003  # it has no keyword
    sys.stdout = _text(_Output(FileIO(1, "w", closefd=False)), sys.stdout)
    sys.stderr = _text(_Stream(FileIO(2, "w", closefd=False)), sys.stderr)


def _text(stream: BufferedWriter, former: TextIO | None) -> TextIOWrapper:
    encoding, errors = (None, None) if former is None else (former.encoding, former.errors)
    return TextIOWrapper(stream, encoding, errors, line_buffering=True)


class _Stream(BufferedWriter):
    """A standard stream. What cannot be written is lost.

    `FileIO.write` is not overridden: if a signal interrupted such a method after its system call, the buffer would
    write the same data again.
    """

    def write(self, data: Any, /) -> int:
        left = memoryview(data)
        while left:
            try:
                left = left[super().write(left) :]
            except OSError as error:
                left = left[getattr(error, "characters_written", 0) :]
                if not self._can_retry(error):
                    break
        return len(data)

    def flush(self) -> None:
        while True:
            try:
                return super().flush()
            except OSError as error:
                if not self._can_retry(error):
                    return None

    def _can_retry(self, _: OSError) -> bool:
        return False


class _Output(_Stream):
    _has_failed = False

    def _can_retry(self, error: OSError) -> bool:
        """Wait if another process that shares the stream set O_NONBLOCK; otherwise raise the first error."""
        if isinstance(error, BlockingIOError):
            select.select([], [self], [])
            return True
        if isinstance(error, BrokenPipeError):  # click ends the command without a message
            raise error
        # What is buffered is written again at the end of the process.
        if self._has_failed:
            return False
        self._has_failed = True
        raise OutputFailed(
            f"standard output cannot be written: {error.strerror} (redirect it to another file, or to {os.devnull})"
        ) from None
