"""Questions to a running service: GET requests with entity tags, on a few connections that are kept open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR
from threading import Event, local
from time import monotonic
from typing import Final, TypeVar
from urllib.parse import urlsplit

from attrs import frozen

from market_index.errors import safe_repr
from market_index_feeds.errors import Unavailable, reason_of

S = TypeVar("S")
T = TypeVar("T")

TIMEOUT_SECONDS: Final = 10.0
"""How long one read from a connection may take."""

ANSWER_SECONDS: Final = 60.0
"""How long a whole answer may take."""

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024

MAX_CONNECTIONS: Final = 8
"""How many questions are asked at the same time."""

_CHUNK_BYTES: Final = 1024 * 1024


@frozen
class Answer:
    """An answer: its body, None if the one with the same entity tag is still current; and its entity tag."""

    body: bytes | None
    etag: str


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


class NotFound(Unavailable):
    """The service answers with 404."""


class Connections:
    """Connections to the service below one base URL, one for each thread that asks."""

    def __init__(self, url: BaseUrl) -> None:
        self._url = url
        self._closing = Event()
        self._own = local()
        self._all: set[HTTPConnection] = set()
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, f"feed {url.host}")

    def map(self, ask: Callable[[S], T], values: Iterable[S]) -> Iterator[T]:
        """Call `ask` for each value, in several threads, and yield the results in order."""
        return self._threads.map(ask, values)

    def get(self, target: str, etag: str) -> Answer:
        """Ask for a target below the base URL. Raises `Unavailable` and `NotFound`.

        A connection that the service has closed is replaced by a new one.
        """
        connection: HTTPConnection | None = getattr(self._own, "connection", None)
        is_new = connection is None
        try:
            if connection is None:
                kind = HTTPSConnection if self._url.is_https else HTTPConnection
                connection = kind(self._url.host, self._url.port, timeout=TIMEOUT_SECONDS)
                self._own.connection = connection
                self._all.add(connection)
            return self._get_on(connection, self._url.prefix + target, etag)
        except (OSError, HTTPException, ValueError) as error:
            if connection is not None:
                connection.close()
                self._all.discard(connection)
            self._own.connection = None
            if is_new or self._closing.is_set():
                raise Unavailable(reason_of(error)) from None
            return self.get(target, etag)

    def interrupt(self) -> None:
        """Let no thread wait for an answer any longer."""
        self._closing.set()
        for connection in list(self._all):
            socket = connection.sock
            if socket is not None:
                with suppress(OSError):
                    socket.shutdown(SHUT_RDWR)

    def close(self) -> None:
        """Interrupt, and close all connections."""
        self.interrupt()
        self._threads.shutdown(cancel_futures=True)
        for connection in list(self._all):
            connection.close()

    def _get_on(self, connection: HTTPConnection, target: str, etag: str) -> Answer:
        if self._closing.is_set():
            raise Unavailable("the feed is closed")
        connection.request("GET", target, headers={"If-None-Match": etag} if etag else {})
        response = connection.getresponse()
        try:
            body = self._body(response, target)
        except Unavailable:
            connection.close()
            raise
        if response.status == 304 and etag:
            return Answer(None, etag)
        if response.status == 200:
            return Answer(body, response.getheader("ETag", ""))
        kind = NotFound if response.status == 404 else Unavailable
        raise kind(f"it answers {target} with {response.status}: {safe_repr(str(body, 'utf-8', 'replace'))}")

    def _body(self, response: HTTPResponse, target: str) -> bytes:
        """Read a body within the limits. Raises `Unavailable`."""
        deadline = monotonic() + ANSWER_SECONDS
        chunks: list[bytes] = []
        length = 0
        while chunk := response.read1(_CHUNK_BYTES):
            chunks.append(chunk)
            length += len(chunk)
            if length > MAX_ANSWER_BYTES:
                raise Unavailable(f"it answers {target} with more than {MAX_ANSWER_BYTES} bytes")
            if monotonic() > deadline or self._closing.is_set():
                raise Unavailable(f"it answers {target} with more than {ANSWER_SECONDS:g} seconds")
        if response.length:
            raise Unavailable(f"its answer to {target} was cut off, {response.length} bytes before its end")
        return b"".join(chunks)
