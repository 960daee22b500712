"""Exit codes, and the exception that causes them. It is printed or logged as one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

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


@contextmanager
def output_errors() -> Iterator[None]:
    """End with one line and `EXIT_FEED` if standard output cannot be written, or another system call fails.

    click itself handles a closed pipe: it ends the command with 1, without a message.
    """
    try:
        yield
    except OSError as error:
        # What is buffered would be written again at the exit of the interpreter, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"Error: input or output failed: {error.strerror or error}", err=True)
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
