"""Exit codes, and the exception that causes them. It is printed or logged as one line."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, Final

import click

from market_index.errors import missing_extra
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


class _Output(FileIO):
    """Standard output that writes all bytes, or ends the command: with 1 if its reader has gone, else with `EXIT_FEED`.

    Without a buffer (`PYTHONUNBUFFERED`), Python ignores that a disk took only a part. A pipe that another process has
    set to non-blocking takes only what it has room for.
    """

    def write(self, content: Any) -> int:
        left = memoryview(content)
        while left:
            try:
                written = super().write(left)
            except OSError as error:
                # What is buffered would be written again at the exit of the interpreter, and fail again.
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
                if error.errno == errno.EPIPE:
                    raise SystemExit(EXIT_ABSENT) from None
                raise Failed(EXIT_FEED, f"standard output cannot be written: {error.strerror}") from None
            if written is None:
                select.select([], [self], [])
            else:
                left = left[written:]
        return len(content)


def require_whole_output() -> None:
    """Make standard output one that is written as a whole. A character that it cannot encode becomes a `?`."""
    sys.stdout = TextIOWrapper(BufferedWriter(_Output(1, "w", closefd=False)), sys.stdout.encoding, "replace")


@contextmanager
def required_extra(user: str, extra: str) -> Iterator[None]:
    """Convert the error of an import into one that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise Failed(EXIT_USAGE, str(missing_extra(user, extra, missing))) from None


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
