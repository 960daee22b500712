"""The error of feeds, and the text of an error in messages."""

from __future__ import annotations

from market_index import MarketIndexError


class FeedError(MarketIndexError):
    """A source cannot be opened or read now, or its kind is not known."""


def reason_of(error: BaseException) -> str:
    """Return the text of an exception for a message: never empty; for an `OSError`, without its number and path.

    For a file that this user may not read, it has the remedy.

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "market.db"))
    'No such file or directory'
    >>> reason_of(TimeoutError())
    'TimeoutError'
    """
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    is_denied_file = isinstance(error, PermissionError) and error.filename is not None
    return f"{reason} (this user must be able to read it)" if is_denied_file else reason
