"""The errors of feeds, and the text of an error in messages."""

from __future__ import annotations

from market_index import MarketIndexError


class FeedError(MarketIndexError):
    """The source of a feed cannot be opened or read, or its kind is not known."""


class Unavailable(Exception):
    """A `Source` cannot be read now. The follower retries, unless the error `is_final`.

    `reason` completes the message "market.db cannot be read: ...".
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final


def reason_of(error: BaseException) -> str:
    """Return the text of an exception for a message: never empty; for an `OSError`, without its number and path.

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "market.db"))
    'No such file or directory'
    >>> reason_of(TimeoutError())
    'TimeoutError'
    """
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
