"""Connections to the servers of a bucket: which server is asked, and when work is tried again.

It is the one module that uses the client library, which only connects, sends and delivers. Of its calls for JetStream,
`publish_async` never reports a rejection (nats.py issue 985), `publish` costs 15 % of the rate, and the state of a
stream lacks its number of keys.

- A connection is never repaired: any problem ends it. So nothing queued for an old connection is sent later, and no
  caller waits for a consumer that is gone.
- `BucketServers.run` retries work that raises a `Retryable` error. After `Unreachable`, the next attempt uses a new
  connection, if possible to another server.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from asyncio import Future
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_address
from itertools import count
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import nats.errors
from attrs import frozen
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as ClientSubscription

from market_index import wire
from market_index_feeds.backoff import next_backoff
from market_index_feeds.errors import reason_of
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import (
    BucketState,
    Message,
    configuration,
    key_prefix,
    message_of,
    state_of,
    stream_name,
)
from market_index_feeds.nats.errors import (
    NO_CLUSTER,
    NoMessage,
    RequestRejected,
    Retryable,
    Unanswered,
    Unreachable,
    error_of,
    rejection_of,
    shown_text,
)

T = TypeVar("T")

CONNECT_SECONDS: Final = 2.0
"""Timeout of connecting to one server."""

ROUND_SECONDS: Final = 5.0
"""Timeout of trying all servers, one after the other."""

REQUEST_SECONDS: Final = 1.0
"""Timeout of a request that reads."""

CREATE_SECONDS: Final = 2.0
"""Timeout of a request that creates something, on which the servers have to agree."""

_CLOSE_SECONDS: Final = 0.5
_PING_SECONDS: Final = 30  # long, because the answer to a ping comes behind everything delivered before it
_LIBRARY_SECONDS: Final = 60  # timeouts of the library, which ours precede
_HEADER_BYTES: Final = 256  # an upper bound of the headers that we send
_MAX_UNREAD_BYTES: Final = 256 * 1024 * 1024

Delivery: TypeAlias = Msg
"""A message as the client library delivers it."""

Subscription: TypeAlias = ClientSubscription
"""A subscription of the client library."""

Sent: TypeAlias = "Future[Delivery]"
"""The reply to a message that was sent; `sequence_of` reads it."""


@frozen
class RetryTimeouts:
    """How long work on a bucket is retried without progress, in seconds.

    `answer` applies if a server is reachable but does not answer: the servers may still elect a leader. `connect`
    applies otherwise.
    """

    connect: float
    answer: float


OPENING: Final = RetryTimeouts(connect=5.0, answer=20.0)
"""How long opening a bucket is retried. Once it is open, a feed retries without end."""


class BucketServers:
    """The servers of an address, those that they report, and the connection to one of them."""

    def __init__(self, address: Address) -> None:
        self._address = address
        # With the name on the certificate of a server, if that is not its own.
        self._servers: dict[str, str | None] = dict.fromkeys(address.servers)
        self._last = ""
        # The last failure of each server, until one is connected. They are kept between rounds, so that the message of
        # an outage does not depend on the order in which the servers are tried.
        self._failures: dict[str, str] = {}
        self._connection: BucketConnection | None = None

    async def run(
        self,
        work: Callable[[BucketConnection], Awaitable[T]],
        timeouts: RetryTimeouts,
        progress: Callable[[], int] = lambda: 0,
    ) -> T:
        """Return the result of the work on a connection, retried with backoff until a timeout.

        `progress` returns how far the last attempt came. The timeout restarts after an attempt that came further than
        all attempts before it. So a long read may be interrupted more often, and work without progress ends.

        Raises the last `Retryable` error, and any other error of the work or of `connect`.
        """
        began, backoff, furthest = monotonic(), 0.0, 0
        while True:
            try:
                return await work(await self.connect())
            except Retryable as error:
                if isinstance(error, Unreachable):
                    await self.disconnect()
                if progress() > furthest:
                    began, backoff, furthest = monotonic(), 0.0, progress()
                backoff = next_backoff(backoff)
                seconds = timeouts.answer if isinstance(error, Unanswered) else timeouts.connect
                if monotonic() + backoff > began + seconds:
                    raise
                await asyncio.sleep(backoff)

    async def connect(self) -> BucketConnection:
        """Return the connection to one of the servers, a new one if the last has ended.

        Raises `Unreachable` if no server is reachable, `PermissionError` if one rejects the credentials, and `OSError`
        if a file that the address names cannot be used.
        """
        if self._connection is None or self._connection.ended.done():
            await self.disconnect()
            self._connection = await self._connect_again()
        return self._connection

    async def disconnect(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connect_again(self) -> BucketConnection:
        """Connect to any server, last to the one that was connected last."""
        tls = self._address.tls()
        others = list(self._servers)
        random.shuffle(others)
        with suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS):
                for server in sorted(others, key=lambda server: server == self._last):
                    try:
                        connection = await BucketConnection.open(self._address, server, tls, self._servers[server])
                    except Unreachable as error:
                        self._failures[server] = str(error)
                    else:
                        self._last = server
                        self._failures.clear()
                        # Servers that were reported before may be gone.
                        self._servers = connection.discovered | dict.fromkeys(self._address.servers)
                        return connection
        raise Unreachable("; ".join(self._failures[server] for server in sorted(self._failures)))


class _Client(Client):
    """The client, which sends no credentials in plain text if the URL requires TLS, and can close its socket now."""

    def __init__(self, *, is_secure: bool) -> None:
        super().__init__()
        self._is_secure = is_secure

    def _connect_command(self) -> bytes:
        # The library lets the server decide whether to use TLS, even for a URL with tls://.
        if self._is_secure and not self._server_info.get("tls_required"):
            raise nats.errors.Error("server does not require TLS; no credentials were sent")
        return super()._connect_command()

    def abort(self) -> None:
        """Close the socket. `close` leaves it open if a server that hangs, or a cancellation, interrupts it."""
        writer = getattr(self._transport, "_bare_io_writer", None)
        if writer is not None:
            writer.transport.abort()


class BucketConnection:
    """A connection to one server, until its first problem: then `ended` is done."""

    def __init__(self, address: Address) -> None:
        self.ended: Future[None] = asyncio.get_running_loop().create_future()
        self.prefix: str = key_prefix(address.bucket)
        self.stream: str = stream_name(address.bucket)
        self._problem = ""
        self._address = address
        self._client = _Client(is_secure=address.is_secure)
        self._inbox = ""
        # Each message has its own token, so that a late reply is not taken for that of a later message.
        self._tokens = count()
        self._replies: dict[str, Sent] = {}

    @classmethod
    async def open(
        cls, address: Address, server: str, tls: ssl.SSLContext | None, tls_hostname: str | None
    ) -> BucketConnection:
        """Connect to a server. Raises `Unreachable`, or `PermissionError` if it rejects the credentials."""
        connection = cls(address)
        # A task of its own: the library may swallow a cancellation.
        connecting = asyncio.ensure_future(connection._connect(server, tls, tls_hostname))
        try:
            await connection.wait_for(connecting, CONNECT_SECONDS)
            connecting.result()
        except BaseException as error:
            connecting.cancel()
            connecting.add_done_callback(connection._abandon)
            connection._end(error)
            await connection.close()
            if not isinstance(error, Exception):
                raise
            reason = connection._problem
            if "authorization" in reason.lower() or "authentication" in reason.lower():
                raise PermissionError(f"{shown_text(server)} rejects the credentials") from None
            raise Unreachable(f"{shown_text(server)}: {reason}") from None
        return connection

    async def close(self) -> None:
        """Disconnect. Closing twice does no harm."""
        # Errors do not matter any more. The library can wait for ever: with TLS, or for a server that hangs.
        try:
            with suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._client.close()
        finally:
            self._client.abort()
            self._end(None)

    def error(self) -> Exception:
        """Return why the connection has ended."""
        is_denied = "permissions violation" in self._problem.lower()
        return PermissionError(self._problem) if is_denied else Unreachable(self._problem)

    @property
    def discovered(self) -> dict[str, str | None]:
        """The servers that this one reports, each with the name on its certificate if that is not its own."""
        scheme, named = ("tls", self._address.servers[0]) if self._address.is_secure else ("nats", None)
        hostname = None if named is None else urlsplit(named).hostname
        return {
            f"{scheme}://{server.netloc}": hostname if _is_ip_address(server.hostname) else None
            for server in self._client.discovered_servers
        }

    @property
    def max_value_bytes(self) -> int:
        """The size of the largest value that the server and the readers accept."""
        return min(self._client.max_payload - _HEADER_BYTES, wire.MAX_ORDER_BOOK_BYTES)

    async def state(self) -> BucketState:
        """Return the state of the bucket, from the server that leads.

        Raises `Unreachable`, `NoBucket` or `Misconfigured`. So each reader and publisher that reads it checks the
        configuration, also of a bucket that is created again or edited.
        """
        return state_of(await self.request(f"STREAM.INFO.{self.stream}", None, REQUEST_SECONDS))

    async def create(self, replicas: int | None) -> None:
        """Create the bucket, on three servers if there is a cluster, unless `replicas` says on how many.

        An existing bucket is not changed. Raises `Unreachable`, or `RequestRejected`.
        """
        subject = f"STREAM.CREATE.{self.stream}"
        try:
            await self.request(subject, configuration(self._address.bucket, replicas or 3), CREATE_SECONDS)
        except RequestRejected as rejected:
            if rejected.code != NO_CLUSTER or replicas is not None:
                raise
            await self.request(subject, configuration(self._address.bucket, 1), CREATE_SECONDS)

    async def last(self, key: str) -> Message | None:
        """Return the last message of a key, of any key for `>`. Raises `Unreachable`, or `NoBucket`."""
        try:
            body = {"last_by_subj": f"{self.prefix}{key}"}
            answer = await self.request(f"STREAM.MSG.GET.{self.stream}", body, REQUEST_SECONDS)
        except NoMessage:
            return None
        return message_of(answer["message"], self.prefix)

    async def request(self, subject: str, body: object, seconds: float) -> Any:
        """Return the answer of the API of JetStream. Raises what it reports, `Unreachable` or `PermissionError`."""
        sent = await self._send(f"$JS.API.{subject}", b"" if body is None else json.dumps(body).encode(), None)
        try:
            await self.wait_for(sent, seconds)
        finally:
            sent.cancel()
        answer = _answer_in(sent.result())
        if "error" in answer:
            raise error_of(answer["error"])
        return answer

    async def publish(self, key: str, value: bytes, headers: dict[str, str]) -> Sent:
        """Send a message, without waiting for its reply. Raises `Unreachable` or `PermissionError`.

        To ignore the reply, cancel the result.
        """
        return await self._send(f"{self.prefix}{key}", value, headers)

    async def wait_for(self, future: Future[T], seconds: float) -> None:
        """Wait until there is a reply. Raises `Unreachable` or `PermissionError` if none comes in time."""
        either: set[Future[Any]] = {future, self.ended}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise self.error() if self.ended.done() else Unanswered(f"no answer within {seconds:g} seconds")

    def new_inbox(self) -> str:
        """Return a unique subject to receive messages on."""
        return self._client.new_inbox()

    async def subscribe(self, subject: str, deliver: Callable[[Delivery], Awaitable[None]]) -> Subscription:
        """Subscribe to a subject. `deliver` is called with each message."""
        return await self._client.subscribe(subject, cb=deliver, pending_bytes_limit=_MAX_UNREAD_BYTES)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        with suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()

    async def reply(self, subject: str) -> None:
        """Send an empty message."""
        with suppress(nats.errors.Error, OSError):
            await self._client.publish(subject)

    async def _connect(self, server: str, tls: ssl.SSLContext | None, tls_hostname: str | None) -> None:
        address = self._address
        await self._client.connect(
            [server],
            name="market-index",
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=_LIBRARY_SECONDS,
            ping_interval=_PING_SECONDS,
            tls=tls,
            tls_hostname=tls_hostname,
            user=address.user,
            password=address.password,
            token=address.token,
            user_credentials=address.creds,
            error_cb=self._on_error,
            closed_cb=self._on_closed,
        )
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_reply)

    def _abandon(self, connecting: Future[None]) -> None:
        """Close the socket of a connection that may have been made after all, and drop the error if not."""
        if not connecting.cancelled():
            connecting.exception()
        self._client.abort()

    async def _send(self, subject: str, value: bytes, headers: dict[str, str] | None) -> Sent:
        token = str(next(self._tokens))
        sent = self._replies[token] = asyncio.get_running_loop().create_future()
        sent.add_done_callback(lambda _: self._replies.pop(token))
        try:
            await self._client.publish(subject, value, f"{self._inbox}.{token}", headers)
        except (OSError, nats.errors.Error) as error:
            self._end(error)
            raise self.error() from None
        return sent

    async def _on_reply(self, reply: Delivery) -> None:
        sent = self._replies.get(reply.subject.rpartition(".")[2])
        if sent is not None and not sent.done():
            sent.set_result(reply)

    async def _on_error(self, error: Exception) -> None:
        self._end(error)

    async def _on_closed(self) -> None:
        # Only now the library has the error that the server sent before it closed the connection.
        self._end(self._client.last_error)

    def _end(self, error: BaseException | None) -> None:
        """End the connection, unless it has ended: the first problem is the cause of the others."""
        if not self.ended.done():
            self._problem = _reason(error)
            self.ended.set_result(None)


def sequence_of(reply: Delivery) -> int:
    """Return the sequence of a stored message, from the reply to it.

    Raises `RequestRejected` if the server rejects it, and `Unanswered` if no stream takes it.
    """
    answer = _answer_in(reply)
    if "error" in answer:
        raise rejection_of(answer["error"])
    return int(answer["seq"])


def _answer_in(reply: Delivery) -> Any:
    if reply.headers and reply.headers.get("Status") == "503":
        raise Unanswered("JetStream is not available")
    return json.loads(reply.data)


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "the connection was closed"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return shown_text(reason_of(error).removeprefix("nats: ").strip("'"))


def _is_ip_address(host: str | None) -> bool:
    try:
        ip_address(host or "")
    except ValueError:
        return False
    return True
