"""Waiting for what another thread or process is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread
from typing import Final

DEADLINE_SECONDS: Final = 60.0
"""How long a test waits for an event before it fails. Only a defect reaches it, however slow the machine is."""


def eventually(holds: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Return as soon as `holds` does; fail when it never does."""
    patience = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < patience, "it did not come about"
        time.sleep(0.002)


def raised_in_thread(work: Callable[[], object]) -> str:
    """What is raised by the work, done in another thread."""
    raised: list[str] = []

    def noting() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # whatever it raises is what is asked for
            raised.append(repr(error))

    thread = Thread(target=noting)
    thread.start()
    thread.join(20)
    return "".join(raised)


def later(seconds: float, work: Callable[[], object]) -> Thread:
    """Do the work in another thread, some time from now."""

    def waiting() -> None:
        time.sleep(seconds)
        work()

    thread = Thread(target=waiting)
    thread.start()
    return thread
