"""Exit codes, and the errors that set them: each is one line on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from market_index import PairNotFound
from market_index_feeds import FeedError, StoreError

EXIT_ABSENT: Final = 1
"""The pair is not tracked."""

EXIT_USAGE: Final = 2
"""Wrong usage, or an extra is not installed."""

EXIT_FEED: Final = 3
"""The feed or the store cannot be opened, read or written."""

EXIT_LISTEN: Final = 4
"""The address cannot be listened on."""

EXIT_REJECTED: Final = 5
"""A record was rejected; everything else was done."""

_SERVER_PACKAGES: Final = {"anyio", "httptools", "starlette", "uvicorn"}


class PairAbsent(click.ClickException):
    """The pair is not tracked."""

    exit_code = EXIT_ABSENT


class ExtraMissing(click.ClickException):
    """The command needs packages that only an extra installs."""

    exit_code = EXIT_USAGE


class FeedFailed(click.ClickException):
    """The feed or the store cannot be opened, read or written."""

    exit_code = EXIT_FEED


class ListenFailed(click.ClickException):
    """The address cannot be listened on."""

    exit_code = EXIT_LISTEN


class NoOrderBook(click.ClickException):
    """`publish` read no order book, but was to change all of the store, or what it reflects."""

    exit_code = EXIT_REJECTED


@contextmanager
def feed_errors() -> Iterator[None]:
    """Convert the errors of feeds and stores into errors of the command."""
    try:
        yield
    except (FeedError, StoreError) as error:
        raise FeedFailed(str(error)) from None
    except PairNotFound as error:
        raise PairAbsent(str(error)) from None


@contextmanager
def listen_errors(host: str, port: int) -> Iterator[None]:
    """Convert what binding a socket or listening on it raises into an error of the command."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ListenFailed(f"cannot listen on {host} port {port}: {reason}") from None


@contextmanager
def server_imports() -> Iterator[None]:
    """Name the extra `server` when a package that it installs is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in _SERVER_PACKAGES:
            raise
        raise ExtraMissing(
            f"serve needs {package}, which comes with its extra: pip install 'market-index[server]'"
        ) from None
