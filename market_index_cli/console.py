"""Output on standard error: log formats, and a progress bar while a large source is read."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from time import monotonic
from typing import Any, Final

import click

from market_index_feeds import Progress

_LARGE_BYTES: Final = 4 * 1024 * 1024
"""The smallest source that gets a progress bar."""


def log_plainly() -> None:
    """Log warnings without times, for a command that ends by itself."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)


def log_with_times(*, with_process: bool = False) -> None:
    """Log with times, for a command that runs until a signal ends it."""
    process = "[%(process)d]" if with_process else ""
    logging.basicConfig(format=f"%(asctime)s %(levelname)s %(name)s{process}: %(message)s", level=logging.WARNING)
    logging.getLogger("market_index_feeds").setLevel(logging.INFO)
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").addFilter(OncePerSecond())


class OncePerSecond(logging.Filter):
    """A rate limit for messages that clients can cause: each message passes at most once per second.

    Messages that differ only in their arguments count as one. A message with a traceback always passes.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is the first of its message within a second, or has a traceback."""
        if record.exc_info:
            return True
        now = self._clock()
        if now < self._passed.get(record.msg, -inf) + 1:
            return False
        self._passed[record.msg] = now
        return True


@contextmanager
def loading_progress(label: str, is_ending: Callable[[], bool] | None = None) -> Iterator[Progress]:
    """Yield a progress callback, which shows a progress bar for a large source on a terminal.

    Once `is_ending` returns True, the callback raises `SystemExit(0)` to interrupt the loading.
    """
    on_terminal = sys.stderr.isatty()
    with ExitStack() as stack:
        bar: Any = None

        def show(done: int, total: int) -> None:
            nonlocal bar
            if is_ending is not None and is_ending():
                raise SystemExit(0)
            if bar is None and on_terminal and total >= _LARGE_BYTES:
                bar = stack.enter_context(click.progressbar(length=total, label=label, file=sys.stderr))
            if bar is not None:
                bar.update(done - bar.pos)

        yield show


def counted(count: int, noun: str) -> str:
    """Return the count with its noun in the singular or plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
