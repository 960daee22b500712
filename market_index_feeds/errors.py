"""All errors of feeds and stores, and the text of an error in messages.

    MarketIndexError
    ├── FeedError               a source cannot be opened or read
    │   ├── Busy                others write to a file: no change or recovery of the log is possible now
    │   ├── Unreachable         no server of a bucket answered: trying again may help
    │   │   └── NotStored       and it does not have the change
    │   ├── NothingReceived     nothing was received from a service in time
    │   ├── InvalidResponse     a response that is too large, or that its source rejects
    │   └── Rejected            a server of a bucket rejects a request: trying again does not help
    └── StoreError              a store cannot be opened, read or written: nothing of the change was written
        ├── StoreBusy           others were writing until the timeout
        ├── Conflict            another program has changed the store
        ├── BookTooLarge        a book exceeds a limit of the store
        └── UnknownOutcome      it is not known whether the change was written

A feed raises `FeedError`, and a store raises `StoreError`. The others below `FeedError` never leave their medium.
"""

from __future__ import annotations

from market_index import MarketIndexError, Pair


class FeedError(MarketIndexError):
    """A source cannot be opened or read now, or its kind is not known."""


class Busy(FeedError):
    """Others were writing to a file until the timeout."""


class Unreachable(FeedError):
    """No server answered. Trying again may help."""


class NotStored(Unreachable):
    """A server could not store a change, and will not store it later. Trying again may help."""


class NothingReceived(FeedError):
    """Nothing was received in time."""


class InvalidResponse(FeedError):
    """The response is not valid. Other resources of the service may be."""


class Rejected(FeedError):
    """A server rejects a request, or cannot be used. Trying again does not help."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class StoreError(MarketIndexError):
    """A store cannot be opened, read or written. Nothing of the change was written, but see `UnknownOutcome`.

    A bucket may have stored a part of a change, of more than 1,000 books and pairs, or if it is full. Then the message
    says how many.
    """


class StoreBusy(StoreError):
    """Others were writing to the store until the timeout of the caller."""


class Conflict(StoreError):
    """The store was changed after the position that the caller knows. Nothing was written, but see `StoreError`."""


class BookTooLarge(StoreError):
    """The books of `pairs` exceed a limit of the store. Nothing was written."""

    def __init__(self, message: str, pairs: tuple[Pair, ...]) -> None:
        super().__init__(message, pairs)
        self.pairs = pairs


class UnknownOutcome(StoreError):
    """It is not known whether the change was written: it was not acknowledged in time.

    It is written as a whole or not at all. `read` shows which.
    """


def reason_of(error: BaseException, permission: str = "to read it") -> str:
    """Return the text of an exception for a message: never empty; for an `OSError`, without its number and path.

    For a file whose permissions deny it, it has the remedy: which `permission` this user must have.

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "market.db"))
    'No such file or directory'
    >>> reason_of(TimeoutError())
    'TimeoutError'
    """
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    is_denied_file = isinstance(error, PermissionError) and error.filename is not None
    return f"{reason} (this user must be able {permission})" if is_denied_file else reason


def problem_of(error: BaseException) -> str:
    """Return the problem of a feed whose source raises an error. It completes the message "market.db ...".

    >>> problem_of(FeedError("it must be a regular file"))
    'cannot be read: it must be a regular file'
    """
    is_expected = isinstance(error, (FeedError, OSError))
    return f"{'cannot be read' if is_expected else 'unexpected error'}: {reason_of(error)}"
