"""A request and its response. The caller of `check` sends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, final

from attrs import field, frozen

from market_index.errors import MarketIndexError, safe_repr


class NoResponse(MarketIndexError):
    """There is no whole response, or the service cannot be read at all."""


class LimitReached(MarketIndexError):
    """No more requests may be sent. A function that sends raises it, for example when its time is over."""


@final
@frozen
class Request:
    """A request. Send its target, path and query below the base URL, without encoding it again."""

    target: str
    method: str = "GET"
    headers: Mapping[str, str] = field(factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.target}" + "".join(f" ({name}: {text})" for name, text in self.headers.items())


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@final
@frozen
class Response:
    """A whole response. The names of its headers may have any letter case.

    In the report of a check, the status is 0 if there was no response, and the body says why.

    >>> Response(200, {"ETag": '"7"'}, b"{}").headers
    {'etag': '"7"'}
    """

    status: int
    headers: Mapping[str, str] = field(converter=_lower)
    body: bytes

    def __str__(self) -> str:
        return f"status {self.status}: {safe_repr(self.body)}" if self.status else f"no response: {self.body.decode()}"


Send: TypeAlias = Callable[[Request], Response]
"""Sends a request, and returns the response of any status. Raises `NoResponse` if there is none."""
