"""A connected socket. Every wait for it ends at the deadline of the exchange, or when the feed is closed.

Python cannot interrupt a blocking call, and a timeout per read does not limit an exchange: a peer that sends one byte
per second never exceeds it. So the socket is non-blocking. Each wait is a series of `poll` calls of at most
`SLICE_SECONDS`, and the limits of the exchange are checked between them.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader, RawIOBase
from math import inf
from queue import Empty, SimpleQueue
from select import POLLIN, POLLOUT, poll
from socket import SO_ERROR, SOCK_STREAM, SOL_SOCKET, getaddrinfo, socket
from threading import Event, Thread
from time import monotonic
from typing import Any, Final, TypeVar

from attrs import define

from market_index_feeds.errors import Unavailable

T = TypeVar("T")

CONNECT_SECONDS: Final = 5.0
"""Timeout of connecting to one address of a host. The other addresses are tried after it."""

SLICE_SECONDS: Final = 0.1
"""The maximum delay until the close of the feed is noticed."""


class TooLarge(Unavailable):
    """A response has more bytes than its limit."""


@define
class Limits:
    """The limits of one exchange: a monotonic deadline, a number of bytes, and the close of the feed."""

    target: str
    seconds: float
    deadline: float
    max_bytes: int
    bytes_received: int
    closing: Event

    @classmethod
    def of(cls, target: str, seconds: float, max_bytes: int, closing: Event) -> Limits:
        """Return the limits of an exchange that starts now and may take `seconds`."""
        return cls(target, seconds, monotonic() + seconds, max_bytes, 0, closing)

    def require_time(self) -> None:
        """Raise `Unavailable` after the deadline, or once the feed is closed."""
        if self.closing.is_set():
            raise Unavailable("the feed is closed")
        if monotonic() > self.deadline:
            raise Unavailable(f"no response to {self.target} within {self.seconds:g} seconds")

    def count(self, length: int) -> int:
        """Count received bytes, and return `length`. Raises `TooLarge` above the limit."""
        self.bytes_received += length
        if self.bytes_received > self.max_bytes:
            raise TooLarge(f"response to {self.target} must have at most {self.max_bytes} bytes, got more")
        return length

    def wait(self, connection: socket, event: int, seconds: float = inf) -> None:
        """Wait until the socket is readable or writable. Raises `Unavailable`, and `TimeoutError` after `seconds`."""
        poller, until = poll(), monotonic() + seconds
        poller.register(connection, event)
        while not poller.poll(1000 * SLICE_SECONDS):
            self.require_time()
            if monotonic() > until:
                raise TimeoutError(f"no connection within {seconds:g} seconds")

    def retry(self, connection: socket, event: int, operation: Callable[[], T]) -> T:
        """Return the result of an operation on a socket, which is repeated until it does not block."""
        while True:
            self.require_time()
            try:
                return operation()
            except ssl.SSLWantReadError:
                self.wait(connection, POLLIN)
            except BlockingIOError:
                self.wait(connection, event)


class Channel:
    """The part of the interface of a socket that `HTTPConnection` uses. `limits` are those of the current exchange."""

    def __init__(self, connected: socket, limits: Limits) -> None:
        self.limits: Limits = limits
        self._socket = connected
        self._users = 1

    @classmethod
    def connect(cls, host: str, port: int, tls: ssl.SSLContext | None, limits: Limits) -> Channel:
        """Connect to the first address of a host that accepts. Raises `OSError`, `ValueError` and `Unavailable`."""
        failure = OSError("the host has no address")
        for family, kind, protocol, _, address in _addresses(host, port, limits):
            connecting = socket(family, kind, protocol)
            with _closed_on_error(connecting):
                try:
                    _connect(connecting, address, limits)
                except OSError as error:
                    connecting.close()
                    failure = error
                else:
                    return cls(connecting if tls is None else _with_tls(connecting, tls, host, limits), limits)
        raise failure

    def sendall(self, data: bytes) -> None:
        """Send all data."""
        unsent = memoryview(data)
        while unsent:
            unsent = unsent[self.limits.retry(self._socket, POLLOUT, partial(self._socket.send, unsent)) :]

    def receive(self, buffer: Any) -> int:
        """Receive into a buffer, and return the number of bytes; 0 at the end of the stream."""
        return self.limits.count(self.limits.retry(self._socket, POLLIN, partial(self._socket.recv_into, buffer)))

    def makefile(self, _: str) -> BufferedReader:
        """Return a reader of the received bytes. As with a socket, it can be read after `close`."""
        self._users += 1
        return BufferedReader(_Reader(self))

    def close(self) -> None:
        """Close the socket once its last reader is closed too."""
        self._users -= 1
        if not self._users:
            self._socket.close()


class _Reader(RawIOBase):
    """The received bytes of a channel as a raw stream."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._channel.receive(buffer)

    def close(self) -> None:
        self._channel.close()
        super().close()


@contextmanager
def _closed_on_error(opened: socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        opened.close()
        raise


def _addresses(host: str, port: int, limits: Limits) -> list[Any]:
    """Look up the addresses of a host in a daemon thread. A look-up cannot be interrupted, so it may be abandoned."""
    results: SimpleQueue[list[Any] | Exception] = SimpleQueue()

    def look_up() -> None:
        try:
            results.put(getaddrinfo(host, port, type=SOCK_STREAM))
        except (OSError, ValueError) as error:
            results.put(error)

    Thread(target=look_up, name=f"look-up of {host}", daemon=True).start()
    while True:
        limits.require_time()
        with suppress(Empty):
            result = results.get(timeout=SLICE_SECONDS)
            if isinstance(result, Exception):
                raise result
            return result


def _connect(connecting: socket, address: Any, limits: Limits) -> None:
    connecting.settimeout(0)
    try:
        connecting.connect(address)
    except BlockingIOError:
        limits.wait(connecting, POLLOUT, CONNECT_SECONDS)
        code = connecting.getsockopt(SOL_SOCKET, SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code)) from None


def _with_tls(connected: socket, tls: ssl.SSLContext, host: str, limits: Limits) -> socket:
    """Return a TLS socket over a connected socket, which it then owns."""
    wrapped = tls.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
    with _closed_on_error(wrapped):
        limits.retry(wrapped, POLLIN, wrapped.do_handshake)
    return wrapped
