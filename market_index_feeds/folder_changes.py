"""Waits for writes to the files of a folder, where the system reports them (inotify of Linux)."""

from __future__ import annotations

import ctypes
import os
import select
import sys
from pathlib import Path
from threading import Event
from typing import Final

_MODIFY: Final = 0x2
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100


class FolderChanges:
    """The writes to the files of a folder. Without inotify, or if the user has too many of them, none is reported."""

    def __init__(self, folder: Path) -> None:
        self._descriptor: int = -1
        if sys.platform == "linux":
            system = ctypes.CDLL(None)
            self._descriptor = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            flags = _MODIFY | _MOVED_TO | _CREATE
            if self._descriptor >= 0 and system.inotify_add_watch(self._descriptor, os.fsencode(folder), flags) < 0:
                self.close()

    @property
    def are_reported(self) -> bool:
        """Whether writes are reported."""
        return self._descriptor >= 0

    def wait(self, stop: Event, seconds: float) -> bool:
        """Wait for a write, so long at most. Return whether there was one since the last call."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not stop.wait(0) and poll.poll(seconds * 1000):
            os.read(self._descriptor, 65_536)
            return True
        return False

    def close(self) -> None:
        """Close it. Closing twice does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
