"""Handles SIGINT, SIGTERM and SIGHUP by callbacks, instead of an exception at an arbitrary point of the program."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ended_by_signals(end: Callable[[], object], hang_up: Callable[[], object] | None = None) -> Iterator[None]:
    """Call `end` on SIGINT and SIGTERM, and `hang_up` on SIGHUP, if it is given and the system has this signal.

    Both must only set a flag: the interrupted code may hold a lock.
    """
    calls = {signal.SIGINT: end, signal.SIGTERM: end}
    if hang_up is not None and hasattr(signal, "SIGHUP"):
        calls[signal.SIGHUP] = hang_up

    def on_signal(number: int, _: Any) -> None:
        calls[signal.Signals(number)]()

    before = {number: signal.signal(number, on_signal) for number in calls}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_hangups() -> None:
    """Ignore SIGHUP in this process, where the system has this signal."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
