"""The signals that end a command, and counts in messages."""

from __future__ import annotations

import signal


def interrupt_on_sigterm() -> None:
    """Let SIGTERM act like Ctrl-C: raise `KeyboardInterrupt`, or cancel the work of the running event loop.

    asyncio handles SIGINT alone. An exception that a handler of SIGTERM raised could end a callback of the loop, and
    leave tasks that cannot continue. SIGINT is enabled first: a shell script starts a background job with SIGINT
    ignored.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def counted(count: int, noun: str) -> str:
    """Return the count with its noun in the singular or plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
