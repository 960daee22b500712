"""The terminal: a progress bar while a large source is read, counts, and the signals that end a command."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import click

from market_index_feeds import Progress

_LARGE_BYTES: Final = 4 * 1024 * 1024
"""The smallest source that gets a progress bar."""


def interrupt_on_sigterm() -> None:
    """Let SIGTERM act like Ctrl-C: raise `KeyboardInterrupt`, or cancel the work of the running event loop.

    asyncio handles SIGINT alone. An exception that a handler of SIGTERM raised could end a callback of the loop, and
    leave tasks that cannot continue. SIGINT is enabled first: a shell script starts a background job with SIGINT
    ignored.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


@contextmanager
def loading(label: str) -> Iterator[Progress]:
    """Yield a progress callback, which shows a progress bar for a large source on a terminal.

    At the end, all objects are excluded from garbage collections: each full one would inspect what was loaded, and
    block all threads.
    """
    on_terminal = sys.stderr.isatty()
    with ExitStack() as stack:
        stack.callback(gc.freeze)
        bar: Any = None

        def show(done: int, total: int) -> None:
            nonlocal bar
            if bar is None and on_terminal and total >= _LARGE_BYTES:
                bar = stack.enter_context(click.progressbar(length=total, label=label, file=sys.stderr))
            if bar is not None:
                bar.update(done - bar.pos)

        yield show


def counted(count: int, noun: str) -> str:
    """Return the count with its noun in the singular or plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
