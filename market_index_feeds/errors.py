"""The errors of feeds, and how a message shows the cause of one."""

from __future__ import annotations

from market_index import MarketIndexError


class FeedError(MarketIndexError):
    """The source of a feed cannot be opened or read, or its name is not that of a known kind of source."""


class Unavailable(Exception):
    """Raised by a `Source` that cannot be read now.

    `reason` completes the sentence "market.db cannot be read: ...". The follower retries, unless `is_final`.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final


def reason_of(error: BaseException) -> str:
    """Return what an exception says, for a message: never empty, and of an `OSError` the text without number and path.

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "market.db"))
    'No such file or directory'
    >>> reason_of(TimeoutError())
    'TimeoutError'
    """
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
