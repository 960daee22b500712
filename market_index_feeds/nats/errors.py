"""The errors of work on a bucket, as the servers or the connection report them.

    Retryable               the work may succeed if it is tried again
      ├ Unreachable         no server is reachable, or the connection ended
      │   └ Unanswered      a server is reachable, but does not answer: there may be no leader
      ├ Contested           other publishers changed keys of a change
      └ Lost                a watch missed a message, or the bucket was replaced: it must be read again
    RequestRejected         a server rejects a request; it has the server's error code
      └ NoMessage           no message is stored under a key
    NoBucket                the bucket does not exist
    Misconfigured           the bucket does not store exactly the last value of each key

None of them leaves the package: a feed and a store raise `FeedError` and `StoreError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from market_index.errors import safe_repr

# Error codes of the servers.
NO_CLUSTER: Final = 10074
WRONG_SEQUENCE: Final = {10071, 10164}
TOO_LARGE: Final = 10054

_NO_STREAM: Final = 10059
_NO_MESSAGE: Final = 10037
_UNAVAILABLE: Final = 503
_MAX_TEXT_LENGTH: Final = 400  # a permission violation shows a key


class Retryable(Exception):
    """The work may succeed if it is tried again."""


class Unreachable(Retryable):
    """No server is reachable, or the connection ended."""


class Unanswered(Unreachable):
    """A server is reachable, but does not answer: the servers may have to elect a leader first."""


class Contested(Retryable):
    """Other publishers changed keys of a change, which was therefore not stored."""


class Lost(Retryable):
    """The deliveries of a watch differ from the bucket, and will not become equal."""


class RequestRejected(Exception):
    """A server rejects a request."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


class NoMessage(RequestRejected):
    """No message is stored under a key."""


class NoBucket(Exception):
    """The bucket does not exist."""

    def __init__(self) -> None:
        super().__init__("there is no such bucket")


class Misconfigured(Exception):
    """The bucket does not store exactly the last value of each key."""


BUCKET_ERRORS: Final = (Retryable, RequestRejected, NoBucket, Misconfigured, OSError)
"""Every expected error of work on a bucket. `OSError`: credentials, certificates, or too many open files."""


def shown_text(text: str) -> str:
    """Return the text of a server for a message: escaped and cut if it is long, or contains control characters."""
    return text if text.isprintable() and len(text) <= _MAX_TEXT_LENGTH else safe_repr(text)


def rejection_of(error: Mapping[str, Any]) -> RequestRejected:
    """Return the rejection that a server's answer contains."""
    return RequestRejected(error.get("err_code", 0), shown_text(str(error.get("description", ""))))


def error_of(error: Mapping[str, Any]) -> Exception:
    """Return the error that a server's answer to a request about a bucket contains."""
    rejection = rejection_of(error)
    if rejection.code == _NO_STREAM:
        return NoBucket()
    if rejection.code == _NO_MESSAGE:
        return NoMessage(rejection.code, str(rejection))
    return Unanswered(str(rejection)) if error.get("code") == _UNAVAILABLE else rejection
