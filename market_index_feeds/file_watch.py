"""Waits until a file is touched, where the system reports that (inotify of Linux)."""

from __future__ import annotations

import ctypes
import os
import select
import sys
from pathlib import Path
from threading import Event
from typing import Final

POLL_SECONDS: Final = 0.006
"""How long a wait takes at least, so that many changes are read together, and where touches are not reported."""

CHECK_SECONDS: Final = 0.05
"""How long it takes then at most where touches are reported. Not every program that writes a file touches it."""

_ATTRIBUTES: Final = 0x4  # IN_ATTRIB: also when the file loses its name


class FileWatch:
    """The touches of a file (`os.utime`). If this user has too many watches, touches are not reported."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int = -1
        if sys.platform == "linux":
            system = ctypes.CDLL(None)
            self._descriptor = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if system.inotify_add_watch(self._descriptor, os.fsencode(path), _ATTRIBUTES) < 0:
                self.close()

    def wait(self, stop: Event) -> None:
        """Wait for a touch since the last call, or for a short time."""
        if not stop.wait(POLL_SECONDS) and self._descriptor >= 0:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            if poll.poll(CHECK_SECONDS * 1000):
                os.read(self._descriptor, 65_536)

    def close(self) -> None:
        """Close it. Closing twice does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
