"""Questions to a running service: GET requests with entity tags, on a few connections that are kept open."""

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

ANSWER_SECONDS: Final = 20.0
"""Timeout of a whole exchange: the look-up of the host, the connection, the request, the head and the body."""

MAX_CONNECTIONS: Final = 8
"""How many questions are asked at the same time."""

_MAX_QUEUED: Final = 2 * MAX_CONNECTIONS
_CHUNK_BYTES: Final = 64 * 1024
# A longer or malformed tag is not sent back: it would take memory for each pair, or break the next request.
_IS_ETAG: Final = re.compile(r'(W/)?"[!#-~]{0,256}"', re.ASCII).fullmatch


@frozen
class Answer:
    """An answer: its body, None if the one with the same entity tag is still current; its entity tag; its freshness."""

    body: bytes | None
    etag: str
    freshness: Freshness


@frozen
class BaseUrl:
    """Where a service is."""

    is_https: bool
    host: str
    port: int | None
    prefix: str

    @classmethod
    def parse(cls, text: str) -> BaseUrl:
        """Return the parts of a base URL. Raises `ValueError` for what is not one."""
        parts = urlsplit(text)
        if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
            raise ValueError("the base URL of a service is like http://127.0.0.1:8000")
        return cls(parts.scheme == "https", parts.hostname, parts.port, parts.path.rstrip("/"))


_Exchanged: TypeAlias = tuple[int, str, Freshness, bytes]
"""The status, the entity tag, the freshness and the body of an answer."""


class NotFound(Unavailable):
    """The service answers with 404."""


class Connections:
    """Connections to the service below one base URL, at most one for each thread that asks."""

    def __init__(self, url: BaseUrl) -> None:
        self._url = url
        self._tls = ssl.create_default_context() if url.is_https else None
        self._closing = Event()
        self._idle: deque[HTTPConnection] = deque()
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, f"feed {url.host}")

    def map(self, ask: Callable[[S], T], values: Iterable[S], progress: Progress | None) -> Iterator[T]:
        """Call `ask` for each value, in several threads, and yield the results in order.

        A few values are queued at a time, so results that are not used yet take little memory. `progress` is called
        repeatedly; what it raises ends the iteration.
        """
        queued: deque[Future[T]] = deque()
        for value in values:
            queued.append(self._threads.submit(ask, value))
            if len(queued) == _MAX_QUEUED:
                yield _result(queued.popleft(), progress)
        while queued:
            yield _result(queued.popleft(), progress)

    def get(self, target: str, etag: str, max_bytes: int) -> Answer:
        """Ask for a target below the base URL. Raises `Unavailable` and `NotFound`.

        A connection that the service has closed is replaced by a new one. `max_bytes` bounds the whole answer.
        """
        limits = Limits.of(target, ANSWER_SECONDS, max_bytes, self._closing)
        status, tag, freshness, body = self._ask(self._url.prefix + target, etag, limits)
        if status == 304 and etag:
            return Answer(None, etag, freshness)
        if status == 200:
            return Answer(body, tag if _IS_ETAG(tag) else "", freshness)
        kind = NotFound if status == 404 else Unavailable
        raise kind(f"it answers {target} with {status}: {safe_repr(str(body, 'utf-8', 'replace'))}")

    def interrupt(self) -> None:
        """Let no thread wait for an answer any longer."""
        self._closing.set()

    def close(self) -> None:
        """Interrupt, and close all connections."""
        self.interrupt()
        self._threads.shutdown(cancel_futures=True)
        for connection in self._idle:
            connection.close()

    def _ask(self, target: str, etag: str, limits: Limits) -> _Exchanged:
        try:
            connection = self._idle.pop()
        except IndexError:
            pass
        else:
            with suppress(OSError, HTTPException):  # the service has closed it, or an error is that of the new one
                return self._exchange(connection, target, etag, limits)
        try:
            kind = HTTPConnection if self._tls is None else partial(HTTPSConnection, context=self._tls)
            return self._exchange(kind(self._url.host, self._url.port), target, etag, limits)
        except (OSError, HTTPException, ValueError) as error:
            raise Unavailable(_reason(error)) from None

    def _exchange(self, connection: HTTPConnection, target: str, etag: str, limits: Limits) -> _Exchanged:
        """Ask on a connection, which is idle afterwards, or closed if it raises."""
        with ExitStack() as on_error:
            on_error.callback(connection.close)
            if isinstance(connection.sock, Channel):
                connection.sock.limits = limits
            else:
                connection.sock = Channel.connect(connection.host, connection.port, self._tls, limits)
            connection.request("GET", target, headers={"If-None-Match": etag} if etag else {})
            with connection.getresponse() as response:
                head = response.status, response.getheader("ETag", ""), freshness_in(response.headers)
                answer = *head, _body(response, limits)
            on_error.pop_all()
        self._idle.append(connection)
        return answer


def _result(future: Future[T], progress: Progress | None) -> T:
    while progress is not None:
        progress(0, 0)
        if wait([future], SLICE_SECONDS).done:
            break
    return future.result()


def _body(response: HTTPResponse, limits: Limits) -> bytes:
    """Read a body. In small pieces: a `Content-Length` must not decide how much memory is taken."""
    body = b"".join(iter(partial(response.read1, _CHUNK_BYTES), b""))
    if response.length:
        raise Unavailable(f"its answer to {limits.target} was cut off, {response.length} bytes before its end")
    return body


def _reason(error: Exception) -> str:
    """Return what an exception says, without control characters of the peer."""
    if isinstance(error, HTTPException) and not isinstance(error, OSError):
        return f"its answer is not valid HTTP: {safe_repr(str(error))}"
    return reason_of(error)
