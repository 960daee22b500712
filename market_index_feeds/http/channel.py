"""A connected socket whose every wait ends at a deadline, or when the feed is closed.

Python cannot interrupt a blocking call, and a timeout per read does not bound an exchange: a peer that sends a byte per
second never exceeds it. So the socket does not block. Each wait is a `poll` of at most `SLICE_SECONDS`, and between two
of them the limits of the exchange are checked.
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
"""Timeout of connecting to one address of a host: another one may accept."""

SLICE_SECONDS: Final = 0.1
"""How long it takes at most to notice that the feed is closed."""


@define
class Limits:
    """The limits of one exchange: its deadline on the monotonic clock, its bytes, and the end of the feed."""

    target: str
    seconds: float
    deadline: float
    max_bytes: int
    bytes_received: int
    closing: Event

    @classmethod
    def of(cls, target: str, seconds: float, max_bytes: int, closing: Event) -> Limits:
        """Return the limits of an exchange that starts now."""
        return cls(target, seconds, monotonic() + seconds, max_bytes, 0, closing)

    def require_time(self) -> None:
        """Raise `Unavailable` after the deadline, or once the feed is closed."""
        if self.closing.is_set():
            raise Unavailable("the feed is closed")
        if monotonic() > self.deadline:
            raise Unavailable(f"it did not answer {self.target} within {self.seconds:g} seconds")

    def count(self, length: int) -> int:
        """Count received bytes, and return their number. Raises `Unavailable` above the limit."""
        self.bytes_received += length
        if self.bytes_received > self.max_bytes:
            raise Unavailable(f"it answers {self.target} with more than {self.max_bytes} bytes")
        return length

    def wait(self, waiting: socket, event: int, seconds: float = inf) -> None:
        """Wait until a socket can be read or written. Raises `Unavailable`, and `TimeoutError` after some seconds."""
        ready, until = poll(), monotonic() + seconds
        ready.register(waiting, event)
        while not ready.poll(1000 * SLICE_SECONDS):
            self.require_time()
            if monotonic() > until:
                raise TimeoutError(f"no connection within {seconds:g} seconds")

    def retry(self, waiting: socket, event: int, act: Callable[[], T]) -> T:
        """Return the result of an operation on a socket, repeated until it does not have to wait."""
        while True:
            self.require_time()
            try:
                return act()
            except ssl.SSLWantReadError:
                self.wait(waiting, POLLIN)
            except BlockingIOError:
                self.wait(waiting, event)


class Channel:
    """A socket, as far as `HTTPConnection` uses one. `limits` are those of the current exchange."""

    def __init__(self, connected: socket, limits: Limits) -> None:
        self.limits: Limits = limits
        self._socket = connected
        self._users = 1

    @classmethod
    def connect(cls, host: str, port: int, tls: ssl.SSLContext | None, limits: Limits) -> Channel:
        """Connect to the first address of a host that accepts. Raises `OSError`, `ValueError` and `Unavailable`."""
        problem = OSError("the host has no address")
        for family, kind, protocol, _, address in _addresses(host, port, limits):
            connecting = socket(family, kind, protocol)
            with _closed_on_error(connecting):
                try:
                    _connect(connecting, address, limits)
                except OSError as error:
                    connecting.close()
                    problem = error
                else:
                    return cls(connecting if tls is None else _secured(connecting, tls, host, limits), limits)
        raise problem

    def sendall(self, data: bytes) -> None:
        """Send all data."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.limits.retry(self._socket, POLLOUT, partial(self._socket.send, rest)) :]

    def receive(self, buffer: Any) -> int:
        """Receive into a buffer, and return the number of bytes; 0 at the end."""
        return self.limits.count(self.limits.retry(self._socket, POLLIN, partial(self._socket.recv_into, buffer)))

    def makefile(self, _: str) -> BufferedReader:
        """Return a reader of what is received. As with a socket, it can be read after `close`."""
        self._users += 1
        return BufferedReader(_Received(self))

    def close(self) -> None:
        """Close the socket, once its last reader is closed too."""
        self._users -= 1
        if not self._users:
            self._socket.close()


class _Received(RawIOBase):
    """What a channel receives."""

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
    """Look up the addresses of a host, in a daemon thread: a look-up cannot be interrupted, so it may be abandoned."""
    found: SimpleQueue[list[Any] | Exception] = SimpleQueue()

    def look_up() -> None:
        try:
            found.put(getaddrinfo(host, port, type=SOCK_STREAM))
        except (OSError, ValueError) as error:
            found.put(error)

    Thread(target=look_up, name=f"look-up of {host}", daemon=True).start()
    while True:
        limits.require_time()
        with suppress(Empty):
            addresses = found.get(timeout=SLICE_SECONDS)
            if isinstance(addresses, Exception):
                raise addresses
            return addresses


def _connect(connecting: socket, address: Any, limits: Limits) -> None:
    connecting.settimeout(0)
    try:
        connecting.connect(address)
    except BlockingIOError:
        limits.wait(connecting, POLLOUT, CONNECT_SECONDS)
        code = connecting.getsockopt(SOL_SOCKET, SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code)) from None


def _secured(connected: socket, tls: ssl.SSLContext, host: str, limits: Limits) -> socket:
    """Return a connection with TLS over a connected socket, which it takes over."""
    secured = tls.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
    with _closed_on_error(secured):
        limits.retry(secured, POLLIN, secured.do_handshake)
    return secured
