"""Waiting for what another thread or process is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread
from typing import Final

from hypothesis import Phase

DEADLINE_SECONDS: Final = 60.0
"""How long a test waits for an event before it fails. Only a defect reaches it, however slow the machine is."""

WITHOUT_SHRINKING: Final = (Phase.explicit, Phase.generate)
"""The phases of properties of real threads, files and servers: each shrunk failure would wait for the deadline."""


def eventually(holds: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Return as soon as `holds` does; fail if it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not happen within {seconds:g} seconds"
        time.sleep(0.002)


def in_thread(work: Callable[[], object]) -> Thread:
    """Start the work in another thread, and return the thread."""
    thread = Thread(target=work)
    thread.start()
    return thread


def raised_in_thread(work: Callable[[], object]) -> str:
    """Return what the work raises in another thread; empty if nothing."""
    raised: list[str] = []

    def noting() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # it is returned, whatever it is
            raised.append(repr(error))

    thread = in_thread(noting)
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive(), "it neither returned nor raised"
    return "".join(raised)
