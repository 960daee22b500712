"""The only place where responses are counted: each once, by the path of its request, with its time and its bytes.

A mounted app is counted by `CountResponses`. A server counts all that it sends itself, in the same `Responses`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from math import inf
from time import monotonic
from typing import Final, final

from attrs import define, field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OTHER: Final = "other"
"""The label of each path that is not that of a route."""

BUCKETS: Final = (0.001, 0.005, 0.02, 0.1, 1.0, inf)
"""The upper bounds of the histogram of response times, in seconds."""


@final
@define
class Counts:
    """The responses to the requests for a path. Only the event loop of an app counts, so no increment is lost."""

    # From 0, because Prometheus does not see the first increase of a series that begins with it.
    statuses: dict[int, int] = field(factory=lambda: defaultdict(int, {500: 0, 503: 0}))
    """How many responses had a status."""
    times: list[int] = field(factory=lambda: [0] * len(BUCKETS))
    """How many responses are in each of `BUCKETS`."""
    seconds: float = 0.0
    """The sum of the seconds from the request to the head of the response."""
    length: int = 0
    """The sum of the bytes of bodies."""

    def add(self, status: int, seconds: float, length: int = 0) -> None:
        """Count a response."""
        self.statuses[status] += 1
        self.times[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds
        self.length += length


@final
class Responses(dict[str, Counts]):
    """The responses of an app by the path of the request: those of its routes, and `OTHER` for any other path."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        super().__init__((path, Counts()) for path in sorted({OTHER, *paths}))

    def __missing__(self, _: str) -> Counts:
        return self[OTHER]


@final
class CountingSend:
    """The ASGI `send` of one response. It counts the response before a client receives it.

    Args:
        send: The `send` that it calls.
        counts: Where the response is counted.
        scope: The scope of the request.
        start: The monotonic time of the request.
    """

    __slots__ = ("_counts", "_has_body", "_send", "_start", "is_complete", "status")

    def __init__(self, send: Send, counts: Counts, scope: Scope, start: float) -> None:
        self._send, self._counts, self._start = send, counts, start
        self._has_body = scope.get("method") != "HEAD"
        self.status: int = 0
        self.is_complete: bool = False

    async def __call__(self, message: Message) -> None:
        """Count what is sent, and send it."""
        is_body = message["type"] == "http.response.body"
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._counts.add(self.status, monotonic() - self._start)
        elif is_body and self._has_body:
            self._counts.length += len(message.get("body", b""))
        await self._send(message)
        self.is_complete = is_body and not message.get("more_body")


@final
class CountResponses:
    """An app that counts its responses.

    Args:
        app: The app.
        responses: Where they are counted, by their path below the mount.
    """

    def __init__(self, app: ASGIApp, responses: Responses) -> None:
        self._app = app
        self.responses: Final = responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))  # routing changes both
        await self._app(scope, receive, CountingSend(send, self.responses[path], scope, monotonic()))
