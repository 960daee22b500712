"""GET requests to a service, with entity tags, on persistent connections.

A timeout per read does not limit an exchange: a peer that sends one byte per second never exceeds it. So other threads
carry the exchanges out, and the thread that waits for an outcome ends the exchange at its deadline: it shuts the socket
down, which ends every read and write of it. A look-up of a host cannot be interrupted. Its thread is abandoned, and is
a daemon: neither the feed nor the end of the process waits for it.
"""

from __future__ import annotations

import re
import ssl
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import closing, suppress
from gzip import BadGzipFile, GzipFile
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from importlib.metadata import version
from queue import SimpleQueue
from socket import SHUT_RDWR, socket
from threading import Event, Thread
from time import monotonic
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from attrs import frozen

from market_index import Freshness
from market_index.errors import safe_repr
from market_index_feeds.errors import Unavailable, reason_of
from market_index_feeds.http.freshness import freshness_in
from market_index_feeds.http.limits import PollingLimits
from market_index_feeds.medium import Progress

MAX_IN_FLIGHT: Final = 8
"""How many requests are in flight at the same time."""

SLICE_SECONDS: Final = 0.1
"""The maximum delay until a deadline, or the close of the feed, is noticed."""

USER_AGENT: Final = f"market-index/{version('market-index')}"
"""The `User-Agent` of all requests."""

_PIECE_BYTES: Final = 64 * 1024
_OVERLOADED: Final = {429, 503}
# The number of seconds of a Retry-After (RFC 9110). A date is ignored: it depends on two clocks.
_IS_DELAY: Final = re.compile(r"\d+", re.ASCII).fullmatch
# http.client accepts no other one.
_IS_HOST: Final = re.compile(r"[^\x00-\x20\x7f]+").fullmatch
# A longer or malformed tag is ignored: it would take memory for each pair, or break the next request.
_IS_ETAG: Final = re.compile(r'(W/)?"[!#-~]{0,256}"', re.ASCII).fullmatch


class NotFound(Unavailable):
    """The service responds with 404."""


class TooLarge(Unavailable):
    """The body of a response, decompressed, has more bytes than its limit."""


class Overloaded(Unavailable):
    """The service responds with 429 or 503. `retry_seconds` is its `Retry-After`, 0 if it sent none."""

    def __init__(self, reason: str, retry_seconds: float) -> None:
        super().__init__(reason)
        self.retry_seconds = retry_seconds


@frozen
class BaseUrl:
    """The parts of the base URL of a service."""

    is_https: bool
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, text: str) -> BaseUrl:
        """Parse a base URL. Raises `ValueError` if it is not one."""
        error = ValueError("it must be the base URL of a service, such as http://127.0.0.1:8000")
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            # Its text may show a part of a password.
            raise error from None
        if not _IS_HOST(host) or port == 0 or parts.username is not None or parts.query or parts.fragment:
            raise error
        is_https = parts.scheme == "https"
        return cls(is_https, host, port or (443 if is_https else 80), parts.path.rstrip("/"))


@frozen
class ServiceRequest:
    """A target, the entity tag of its known content or an empty text, and the limit of the body.

    With an entity tag, the response may wait so many whole seconds for a change of the content (decision 28).
    """

    target: str
    etag: str
    max_bytes: int
    wait_seconds: int = 0


@frozen
class ServiceResponse:
    """A response: its body, or None if it is unchanged (304); its entity tag; its freshness; whether it has waited."""

    body: bytes | None
    etag: str
    freshness: Freshness
    has_waited: bool


Outcome: TypeAlias = ServiceResponse | Unavailable
"""A response, or why there is none."""


class Exchange:
    """A request and its outcome. One thread runs it, another one waits for the outcome."""

    def __init__(self, request: ServiceRequest, seconds: float) -> None:
        self.request: ServiceRequest = request
        self._seconds = seconds
        self._deadline = monotonic() + seconds
        self._socket: socket | None = None
        self._is_ended = False
        self._result: Future[Outcome] = Future()

    def outcome(self, stop: Event, progress: Progress | None) -> Outcome:
        """Wait for the outcome until the deadline or `stop`. `progress` is called repeatedly, and may raise."""
        while True:
            if progress is not None:
                progress(0, 0)
            if (outcome := self.result(SLICE_SECONDS)) is not None:
                return outcome
            if stop.is_set():
                self.end()
                return Unavailable("the feed is closed")

    def result(self, seconds: float = 0) -> Outcome | None:
        """Wait so many seconds for the outcome; None if there is none yet. After the deadline, end the exchange."""
        try:
            return self._result.result(seconds)
        except Unavailable as error:
            return error
        except TimeoutError:
            if monotonic() <= self._deadline:
                return None
        self.end()
        return Unavailable(f"no response to {self.request.target} within {self._seconds:g} seconds")

    @property
    def is_over(self) -> bool:
        """Whether its thread has finished with it."""
        return self._result.done()

    def call_when_over(self, function: Callable[[], object]) -> None:
        """Call a function once the thread has finished with the exchange, in that thread, or now if it has."""
        self._result.add_done_callback(lambda _: function())

    def end(self) -> None:
        """End all waits for the connected socket. If there is none yet, nothing is sent on it."""
        self._is_ended = True
        if self._socket is not None:
            with suppress(OSError):  # the peer has already closed it
                # Not the method of an `SSLSocket`: it ends TLS first, so a request being sent would become plain text.
                socket.shutdown(self._socket, SHUT_RDWR)

    def run(self, connection: HTTPConnection) -> None:
        """Set the outcome. The connection is closed, unless it can be used again."""
        try:
            self._result.set_result(self._respond(connection))
        except Exception as error:  # noqa: BLE001  # it is raised in the thread that waits
            connection.close()
            self._result.set_exception(_as_unavailable(error))

    def _respond(self, connection: HTTPConnection) -> Outcome:
        """Send the request on an open connection, or on a new one."""
        if connection.sock is not None:
            with suppress(OSError, HTTPException):  # the service may have closed it; a new one raises other errors
                return self._send(connection)
            connection.close()
        self._require_active()
        connection.connect()
        # From here on, only `end` limits the time.
        connection.sock.settimeout(None)
        return self._send(connection)

    def _send(self, connection: HTTPConnection) -> Outcome:
        self._socket = connection.sock
        self._require_active()
        headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip"}
        if self.request.etag:
            headers["If-None-Match"] = self.request.etag
        if self.request.wait_seconds:
            headers["Prefer"] = f"wait={self.request.wait_seconds}"
        connection.request("GET", self.request.target, headers=headers)
        with connection.getresponse() as response:
            return _read(response, self.request)

    def _require_active(self) -> None:
        if self._is_ended:
            raise Unavailable("the exchange has ended")


class ServiceClient:
    """A client of the service at a base URL, for one thread at a time. `stop` ends all waits."""

    def __init__(self, url: BaseUrl, limits: PollingLimits, stop: Event) -> None:
        self._url = url
        self._limits = limits
        self._stop = stop
        self._tls = ssl.create_default_context() if url.is_https else None
        # None ends all threads.
        self._queue: SimpleQueue[Exchange | None] = SimpleQueue()
        self._threads = 0
        self._started: list[Exchange] = []

    def get(self, request: ServiceRequest, progress: Progress | None = None) -> ServiceResponse:
        """Return the response to a request. Raises `Unavailable`, `NotFound` and `TooLarge`."""
        (outcome,) = self.get_all([request], progress)
        if isinstance(outcome, Unavailable):
            raise outcome
        return outcome

    def get_all(self, requests: Iterable[ServiceRequest], progress: Progress | None) -> Generator[Outcome, None, None]:
        """Yield the outcomes of requests in their order.

        If the generator is closed early, it ends those that are in flight, and the client can only be closed.
        """
        in_flight: deque[Exchange] = deque()
        try:
            for request in requests:
                in_flight.append(self.start(request))
                if len(in_flight) == MAX_IN_FLIGHT:
                    yield self._first_outcome(in_flight, progress)
            while in_flight:
                yield self._first_outcome(in_flight, progress)
        finally:
            for exchange in in_flight:
                exchange.end()

    def start(self, request: ServiceRequest) -> Exchange:
        """Start an exchange. There is a thread for each one that is not over, so that none waits for another one."""
        exchange = Exchange(request, self._limits.exchange_seconds)
        self._started = [one for one in self._started if not one.is_over]
        self._started.append(exchange)
        if self._threads < len(self._started):
            Thread(target=self._run, name=f"requests to {self._url.host}", daemon=True).start()
            self._threads += 1
        self._queue.put(exchange)
        return exchange

    def close(self) -> None:
        """Close all connections that are not in use. The other ones are closed after their use."""
        self._queue.put(None)

    def _first_outcome(self, in_flight: deque[Exchange], progress: Progress | None) -> Outcome:
        outcome = in_flight[0].outcome(self._stop, progress)
        in_flight.popleft()
        return outcome

    def _run(self) -> None:
        """Run exchanges on one connection until `close`."""
        with closing(self._new_connection()) as connection:
            while (exchange := self._queue.get()) is not None:
                exchange.run(connection)
        self._queue.put(None)

    def _new_connection(self) -> HTTPConnection:
        host, port, seconds = self._url.host, self._url.port, self._limits.connect_seconds
        if self._tls is None:
            return HTTPConnection(host, port, timeout=seconds)
        return HTTPSConnection(host, port, timeout=seconds, context=self._tls)


def _read(response: HTTPResponse, request: ServiceRequest) -> Outcome:
    """Return the outcome of a request. Raises `Unavailable` if the connection cannot be used again."""
    try:
        body = _read_body(response, request)
    except (BadGzipFile, EOFError, zlib.error) as error:
        raise Unavailable(f"response to {request.target} is not valid gzip: {error}") from None
    if response.length:
        raise Unavailable(f"response to {request.target} was cut off {response.length} bytes before its end")
    if response.status in {200, 304 if request.etag else 200}:
        content, tag = (None, request.etag) if response.status == 304 else (body, response.getheader("ETag", ""))
        has_waited = "preference-applied" in response.headers
        return ServiceResponse(content, tag if _IS_ETAG(tag) else "", freshness_in(response.headers), has_waited)
    text = safe_repr(str(body, "utf-8", "replace"))
    reason = f"response to {request.target} has status {response.status}: {text}"
    if response.status in _OVERLOADED:
        delay = response.getheader("Retry-After", "")
        return Overloaded(reason, float(delay) if _IS_DELAY(delay) else 0)
    return NotFound(reason) if response.status == 404 else Unavailable(reason)


def _read_body(response: HTTPResponse, request: ServiceRequest) -> bytes:
    """Return the whole body, decompressed. Raises `TooLarge`."""
    coding = response.getheader("Content-Encoding", "identity").lower()
    if coding not in {"identity", "gzip"}:
        raise Unavailable(
            f"response to {request.target} must be compressed with gzip or not at all, got {safe_repr(coding)}"
        )
    content = GzipFile(fileobj=response) if coding == "gzip" else response
    body = bytearray()
    # Small pieces: neither an announced length, nor many tiny chunks, nor the ratio of a compression decide how much
    # memory is allocated.
    while piece := content.read1(_PIECE_BYTES):
        body += piece
        if len(body) > request.max_bytes:
            raise TooLarge(f"response to {request.target} must have at most {request.max_bytes} bytes, got more")
    return bytes(body)


def _as_unavailable(error: Exception) -> Exception:
    """Return an error of the network or of the peer as an `Unavailable` with a text that is safe to show."""
    if isinstance(error, HTTPException) and not isinstance(error, OSError):
        return Unavailable(f"response is not valid HTTP: {safe_repr(str(error))}")
    return Unavailable(reason_of(error)) if isinstance(error, OSError | ValueError) else error
