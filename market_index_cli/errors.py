"""Exit codes, and the exception that causes them. It is printed or logged as one line."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, RawIOBase, TextIOWrapper
from typing import Any, Final

import click

from market_index_feeds import FeedError, StoreError

EXIT_ABSENT: Final = 1
"""The pair is not tracked."""

EXIT_USAGE: Final = 2
"""Invalid arguments, or an extra is not installed."""

EXIT_FEED: Final = 3
"""The feed or the store cannot be opened, read or written, or standard output cannot be written."""

EXIT_LISTEN: Final = 4
"""The server cannot listen on the address."""

EXIT_REJECTED: Final = 5
"""A record was rejected; all others were processed, unless the command replaces the content of a store."""


class Failed(click.ClickException):
    """The command ends with an exit code, and prints the message in one line."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it for the class


class OutputFailed(Exception):
    """Standard output cannot be written. No `OSError`: an error of the output is no error of an input."""


class _Output(RawIOBase):
    """Standard output that writes all bytes, or raises `OutputFailed`.

    Without a buffer (`PYTHONUNBUFFERED`), Python ignores that a disk took only a part. A pipe that another process has
    set to non-blocking takes only what it has room for.
    """

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def isatty(self) -> bool:
        return os.isatty(1)

    def write(self, content: Any) -> int:
        left = memoryview(content).cast("B")
        while left:
            try:
                left = left[os.write(1, left) :]
            except BlockingIOError:
                select.select([], [1], [])
            except OSError as error:
                raise OutputFailed(error.errno, error.strerror) from None
        return len(content)


@contextmanager
def output_errors() -> Iterator[None]:
    """Write all of standard output, or end: with 1 if its reader has gone, else with one line and `EXIT_FEED`."""
    stdout = sys.stdout
    sys.stdout = TextIOWrapper(
        BufferedWriter(_Output()), stdout.encoding, stdout.errors, line_buffering=bool(stdout.line_buffering)
    )
    try:
        yield
    except (OSError, OutputFailed) as error:
        # What is buffered would be written again at the exit of the interpreter, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        number, reason = error.args if isinstance(error, OutputFailed) else (None, error.strerror or error)
        if number == errno.EPIPE:
            sys.exit(EXIT_ABSENT)
        is_output = number is not None
        message = f"standard output cannot be written: {reason}" if is_output else f"input or output failed: {reason}"
        click.echo(f"Error: {message}", err=True)
        sys.exit(EXIT_FEED)


@contextmanager
def feed_errors() -> Iterator[None]:
    """Convert the errors of feeds and stores into errors of the command."""
    try:
        yield
    except (FeedError, StoreError) as error:
        raise Failed(EXIT_FEED, str(error)) from None


@contextmanager
def listen_errors(address: str) -> Iterator[None]:
    """Convert errors of opening a socket or listening on it into an error of the command."""
    try:
        yield
    except (OSError, ValueError) as error:  # a UnicodeError is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise Failed(EXIT_LISTEN, f"cannot listen on {address}: {reason}") from None
