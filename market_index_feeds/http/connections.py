"""GET requests to a running service, with entity tags, on a few persistent connections."""

from __future__ import annotations

import re
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Event
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from attrs import frozen

from market_index import Freshness
from market_index.errors import safe_repr
from market_index_feeds.errors import Unavailable, reason_of
from market_index_feeds.http.channel import SLICE_SECONDS, Channel, Limits
from market_index_feeds.http.freshness import freshness_in
from market_index_feeds.medium import Progress

S = TypeVar("S")
T = TypeVar("T")

RESPONSE_SECONDS: Final = 20.0
"""Timeout of a whole exchange: the look-up of the host, the connection, the request, the head and the body."""

MAX_CONNECTIONS: Final = 8
"""How many requests are in flight at the same time."""

_MAX_QUEUED: Final = 2 * MAX_CONNECTIONS
_CHUNK_BYTES: Final = 64 * 1024
# A longer or malformed tag is ignored: it would take memory for each pair, or break the next request.
_IS_ETAG: Final = re.compile(r'(W/)?"[!#-~]{0,256}"', re.ASCII).fullmatch


@frozen
class Response:
    """A response: its body, or None if it is unchanged (304); its entity tag; its freshness."""

    body: bytes | None
    etag: str
    freshness: Freshness


@frozen
class BaseUrl:
    """The parts of the base URL of a service."""

    is_https: bool
    host: str
    port: int | None
    prefix: str

    @classmethod
    def parse(cls, text: str) -> BaseUrl:
        """Parse a base URL. Raises `ValueError` if it is not one."""
        parts = urlsplit(text)
        if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
            raise ValueError("it must be the base URL of a service, such as http://127.0.0.1:8000")
        return cls(parts.scheme == "https", parts.hostname, parts.port, parts.path.rstrip("/"))


_Exchanged: TypeAlias = tuple[int, str, Freshness, bytes]
"""The status, the entity tag, the freshness and the body of a response."""


class NotFound(Unavailable):
    """The service responds with 404."""


class Connections:
    """Connections to the service at a base URL, at most one per thread."""

    def __init__(self, url: BaseUrl) -> None:
        self._url = url
        self._tls = ssl.create_default_context() if url.is_https else None
        self._closing = Event()
        self._idle: deque[HTTPConnection] = deque()
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, f"feed {url.host}")

    def map(self, request: Callable[[S], T], values: Iterable[S], progress: Progress | None) -> Iterator[T]:
        """Call `request` with each value, in several threads, and yield the results in order.

        Only a few values are queued at a time, so that unused results take little memory. `progress` is called
        repeatedly; an exception that it raises ends the iteration.
        """
        queued: deque[Future[T]] = deque()
        for value in values:
            queued.append(self._threads.submit(request, value))
            if len(queued) == _MAX_QUEUED:
                yield _result(queued.popleft(), progress)
        while queued:
            yield _result(queued.popleft(), progress)

    def get(self, target: str, etag: str, max_bytes: int) -> Response:
        """Send a GET request for a target below the base URL. Raises `Unavailable`, `NotFound` and `TooLarge`.

        A connection that the service has closed is replaced. `max_bytes` is the limit of the whole response.
        """
        limits = Limits.of(target, RESPONSE_SECONDS, max_bytes, self._closing)
        status, tag, freshness, body = self._request(self._url.prefix + target, etag, limits)
        if status == 304 and etag:
            return Response(None, etag, freshness)
        if status == 200:
            return Response(body, tag if _IS_ETAG(tag) else "", freshness)
        kind = NotFound if status == 404 else Unavailable
        raise kind(f"response to {target} has status {status}: {safe_repr(str(body, 'utf-8', 'replace'))}")

    def interrupt(self) -> None:
        """End all waits for responses."""
        self._closing.set()

    def close(self) -> None:
        """End all waits, and close all connections."""
        self.interrupt()
        self._threads.shutdown(cancel_futures=True)
        for connection in self._idle:
            connection.close()

    def _request(self, target: str, etag: str, limits: Limits) -> _Exchanged:
        """Exchange a request and its response on an idle connection, or on a new one."""
        try:
            connection = self._idle.pop()
        except IndexError:
            pass
        else:
            with suppress(OSError, HTTPException):  # the service may have closed it; a new one raises other errors
                return self._exchange(connection, target, etag, limits)
        try:
            kind = HTTPConnection if self._tls is None else partial(HTTPSConnection, context=self._tls)
            return self._exchange(kind(self._url.host, self._url.port), target, etag, limits)
        except (OSError, HTTPException, ValueError) as error:
            raise Unavailable(_reason(error)) from None

    def _exchange(self, connection: HTTPConnection, target: str, etag: str, limits: Limits) -> _Exchanged:
        """Exchange a request and its response. The connection is idle afterwards, or closed on error."""
        with ExitStack() as on_error:
            on_error.callback(connection.close)
            if isinstance(connection.sock, Channel):
                connection.sock.limits = limits
            else:
                connection.sock = Channel.connect(connection.host, connection.port, self._tls, limits)
            connection.request("GET", target, headers={"If-None-Match": etag} if etag else {})
            with connection.getresponse() as response:
                head = response.status, response.getheader("ETag", ""), freshness_in(response.headers)
                exchanged = *head, _body(response, limits)
            on_error.pop_all()
        self._idle.append(connection)
        return exchanged


def _result(future: Future[T], progress: Progress | None) -> T:
    while progress is not None:
        progress(0, 0)
        if wait([future], SLICE_SECONDS).done:
            break
    return future.result()


def _body(response: HTTPResponse, limits: Limits) -> bytes:
    """Read a body in small chunks, so that a `Content-Length` does not decide how much memory is allocated."""
    body = b"".join(iter(partial(response.read1, _CHUNK_BYTES), b""))
    if response.length:
        raise Unavailable(f"response to {limits.target} was cut off {response.length} bytes before its end")
    return body


def _reason(error: Exception) -> str:
    """Return the text of an exception, without control characters of the peer."""
    if isinstance(error, HTTPException) and not isinstance(error, OSError):
        return f"response is not valid HTTP: {safe_repr(str(error))}"
    return reason_of(error)
