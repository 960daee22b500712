"""Ending by SIGINT and SIGTERM, without raising anything where they happen to arrive."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ended_by_signals(end: Callable[[], object]) -> Iterator[None]:
    """Have SIGINT and SIGTERM call `end`, which only notes it: what they would interrupt may hold a lock."""

    def ended(*_: Any) -> None:
        end()

    before = {number: signal.signal(number, ended) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
