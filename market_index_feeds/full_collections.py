"""Postpones full garbage collections while many books are read.

Theory of operation
    A full collection inspects all objects of the process, and blocks all threads. Python starts one when the objects
    that survived younger collections have grown by a quarter. While books are read, that is again and again, and it
    frees none of them: they form no cycles. Younger collections still run, and free new cycles.

    The threshold is that of the process: the first of several readers raises it, and the last one restores it.
"""

from __future__ import annotations

import gc
from threading import Lock
from typing import Final

_NEVER: Final = 2**31 - 1


class _Postponed:
    """A context manager in which no full collection starts. Any number of threads may use it at the same time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._readers = 0
        self._threshold = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._readers:
                self._threshold = _replace_threshold(_NEVER)
            self._readers += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._readers -= 1
            if not self._readers:
                _replace_threshold(self._threshold)


def _replace_threshold(threshold: int) -> int:
    """Set the threshold of full collections, and return the previous one."""
    young, middle, previous = gc.get_threshold()
    gc.set_threshold(young, middle, threshold)
    return previous


full_collections_postponed: Final = _Postponed()
