"""Handles SIGINT and SIGTERM by a callback, instead of an exception at an arbitrary point of the program."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_signals(end: Callable[[], object]) -> Iterator[None]:
    """Call `end` on SIGINT and SIGTERM. It must only set a flag: the interrupted code may hold a lock."""
    before = {number: signal.signal(number, lambda *_: end()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
