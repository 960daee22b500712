"""The connection to the servers of a bucket: one at a time, made when a request needs it.

Theory of operation
===================

The client library only connects, sends and delivers. Its reconnection is off, because it would send later what its
caller has given up. Any problem ends the connection: the library reports an error, a request has no answer in time, or
the server closes it. The next request makes a new one. Connections are counted, so that a reader notices a new one.

A request has a timeout of its own. `retried` sets a deadline, too, for all requests of some work together.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import APIError

from market_index.errors import safe_repr
from market_index_feeds.backoff import next_backoff
from market_index_feeds.errors import NotStored, Rejected, Unreachable, reason_of
from market_index_feeds.nats.address import BucketAddress
from market_index_feeds.nats.credentials import connection_options

T = TypeVar("T")

OLDEST_VERSION: Final = 2, 12, 2
"""The oldest version of the servers. 2.12.0 has atomic batches, but deadlocks if pages are read beside them."""

CONNECT_SECONDS: Final = 2.0
"""Timeout of each step of connecting to a server."""

CONNECT_TO_ANY_SECONDS: Final = 5.0
"""Timeout of connecting to one of several servers."""

REQUEST_SECONDS: Final = 2.0
"""Timeout of a request, without the time that its messages take on the slowest link."""

SLOWEST_BYTES_PER_SECOND: Final = 1_000_000

LIBRARY_SECONDS: Final = 600
"""Timeout of the library for a request: so long that ours always comes first."""

_CLOSE_SECONDS: Final = 0.2
_PING_SECONDS: Final = 30

# Error codes of the servers.
NO_BUCKET: Final = 10059
_STORE_FAILED: Final = 10077  # its status is 503, but trying again does not help: the bucket is full
_RETRYABLE: Final = {10176, 10210}  # a batch is incomplete; there are too many unfinished batches

_MAX_TEXT_LENGTH: Final = 400  # a permission violation shows a key


class Connection:
    """The connection of a bucket. `count` is how many were made; `subscribe` is called with the client of each."""

    def __init__(self, address: BucketAddress, subscribe: Callable[[Client], Awaitable[object]] | None = None) -> None:
        self.count: int = 0
        self._address = address
        self._subscribe = subscribe
        self._servers = list(address.servers)
        self._client: Client | None = None
        self._deadline = inf
        self._ended: Future[None]
        self._closed: asyncio.Event
        self._problem = ""

    async def client(self) -> Client:
        """Return the client, a new one if the last connection has ended. Raises `NotStored` or `Rejected`."""
        if self._client is None or self._ended.done():
            await self.close()
            return await self._connect()
        return self._client

    async def ask(self, request: Callable[[JetStreamContext], Awaitable[T]], length: int = 0) -> T:
        """Return the answer of JetStream to a request with messages of this length in bytes.

        Raises as `answer`, and:
            NotStored: JetStream cannot answer now.
            Rejected: It answers with an error, whose code is that of the servers.
            NoStreamResponseError: A message was sent, and no stream stores it.
        """
        client = await self.client()
        try:
            return await self.answer(request(client.jetstream(timeout=LIBRARY_SECONDS)), length)
        except APIError as error:
            code, text = error.err_code, shown_text(str(error.description))
            if code is None:
                raise Unreachable("JetStream is not available") from None
            if code in _RETRYABLE or (error.code == 503 and code != _STORE_FAILED):
                raise NotStored(text) from None
            if code == NO_BUCKET:
                text = "there is no such bucket (market-index publish or relay creates it)"
            raise Rejected(text, code) from None

    async def answer(self, work: Awaitable[T], length: int = 0) -> T:
        """Return the answer to a request whose messages have this length in bytes.

        If there is none in time, the connection is closed. Raises `Unreachable`, `Rejected` or an error of JetStream.
        """
        seconds = min(REQUEST_SECONDS, self._remaining_seconds) + length / SLOWEST_BYTES_PER_SECOND
        task = asyncio.ensure_future(work)
        # The library may swallow a cancellation, and raise later.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        either: list[Future[Any]] = [task, self._ended]
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await self.close()
            raise
        problem = self._problem or f"no answer within {seconds:.3g} seconds"
        if task.done():
            try:
                return task.result()
            except nats.js.errors.Error:  # an answer of JetStream
                raise
            except (nats.errors.Error, OSError) as error:
                problem = self._problem or _reason(error)
        task.cancel()
        await self.close()
        if "permissions violation" in problem.lower():
            raise Rejected(problem)
        raise Unreachable(problem)

    async def retried(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Return the result of the work, retried with backoff while it raises `Unreachable`, for some seconds.

        No request waits longer than until then. With 0 seconds, the work is tried once, with the usual timeouts. Raises
        the last `Unreachable`, unless its attempt was cut short after others, and any other error.
        """
        until, backoff, cause = monotonic() + seconds, 0.0, None
        self._deadline = until if seconds else inf
        try:
            while True:
                try:
                    return await work()
                except Unreachable as error:
                    cause, backoff = cause if cause and monotonic() >= until else error, next_backoff(backoff)
                    if monotonic() + backoff > until:
                        raise cause from None
                    await asyncio.sleep(backoff)
        finally:
            self._deadline = inf

    async def close(self) -> None:
        """Disconnect. Closing twice does no harm."""
        client, self._client = self._client, None
        if client is not None:
            await _close(client, self._closed)

    @property
    def _remaining_seconds(self) -> float:
        return max(self._deadline - monotonic(), 0.0)

    async def _connect(self) -> Client:
        client, closed, self._problem = Client(), asyncio.Event(), ""
        options = connection_options(self._address)
        self._ended = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(min(CONNECT_TO_ANY_SECONDS, self._remaining_seconds)):
                await client.connect(
                    self._servers,
                    name="market-index",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_SECONDS,  # type: ignore[arg-type]  # fractions are accepted
                    ping_interval=_PING_SECONDS,
                    error_cb=partial(self._on_error, client),
                    closed_cb=partial(self._on_closed, client, closed),
                    **options,
                )
                if self._subscribe is not None:
                    await self._subscribe(client)
        except BaseException as error:
            await _close(client, closed)
            reason = self._problem or _reason(error)
            if not isinstance(error, Exception):
                raise
            if "authorization" in reason.lower() or "authentication" in reason.lower():
                raise Rejected(f"the server rejects the credentials: {reason}") from None
            raise NotStored(reason) from None
        reported = client.connected_server_version
        version = reported.major, reported.minor, reported.patch
        if version < OLDEST_VERSION:
            await _close(client, closed)
            oldest, got = (".".join(map(str, numbers)) for numbers in (OLDEST_VERSION, version))
            raise Rejected(f"nats-server must have version {oldest} or later, got {got}")
        if not self._address.is_secure:
            # The certificate of a server may not contain the address that it reports.
            found = [f"nats://{server.netloc}" for server in client.discovered_servers]
            self._servers = list(dict.fromkeys([*self._address.servers, *found]))
        self._client, self._closed, self._problem = client, closed, ""
        self.count += 1
        return client

    async def _on_error(self, client: Client, error: Exception) -> None:
        if self._client in {None, client}:
            self._problem = self._problem or _reason(error)
        self._end(client)

    async def _on_closed(self, client: Client, closed: asyncio.Event) -> None:
        closed.set()
        self._end(client)

    def _end(self, client: Client) -> None:
        if client is self._client and not self._ended.done():
            self._problem = self._problem or "the connection was closed"
            self._ended.set_result(None)


async def _close(client: Client, closed: asyncio.Event) -> None:
    """Close a connection, or wait until the library has closed it.

    The library can wait for ever: after a failed handshake, or for a server that hangs.
    """
    with suppress(TimeoutError, nats.errors.Error, OSError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close()
            await closed.wait()


def shown_text(text: str) -> str:
    """Return the text of a server for a message: escaped and cut if it is long, or contains control characters."""
    return text if text.isprintable() and len(text) <= _MAX_TEXT_LENGTH else safe_repr(text)


def _reason(error: BaseException) -> str:
    return shown_text(reason_of(error).removeprefix("nats: ").strip("'"))
