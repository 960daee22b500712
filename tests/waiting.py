"""Helpers that wait for other threads and processes, without fixed delays, and let threads switch often."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Final

from hypothesis import Phase

DEADLINE_SECONDS: Final = float(os.environ.get("MARKET_INDEX_TEST_DEADLINE", "60"))
"""The timeout of an event in a test. It is so long that only a defect reaches it, even on a slow machine.

Mutation testing sets a short one, because many mutants reach it.
"""

WITHOUT_SHRINKING: Final = (Phase.explicit, Phase.generate)
"""Hypothesis phases for properties of threads, files and servers, where each shrinking step would take the timeout."""


def eventually(holds: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Return as soon as `holds()` is true; fail after the timeout."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not happen within {seconds:g} seconds"
        time.sleep(0.002)


@contextmanager
def frequent_switches() -> Iterator[None]:
    """Let threads switch between any two steps, instead of each 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_thread(work: Callable[[], object]) -> Thread:
    """Start the work in another thread, and return the thread."""
    thread = Thread(target=work)
    thread.start()
    return thread
