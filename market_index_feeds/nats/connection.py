"""A connection to one server: the one module that uses the client library.

A connection is never repaired: any problem ends it, and the caller connects again. So nothing queued for an old
connection is sent later, and no caller waits for a consumer that is gone.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import count
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as ClientSubscription

from market_index import wire
from market_index_feeds.errors import reason_of
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import Message, State, configuration, key_prefix, message_of, state_of, stream_name
from market_index_feeds.nats.errors import (
    NO_CLUSTER,
    NoMessage,
    Rejected,
    Unanswered,
    Unreachable,
    error_of,
    shown_text,
)

CONNECT_SECONDS: Final = 2.0
"""Timeout of connecting to one server."""

REQUEST_SECONDS: Final = 1.0
"""Timeout of a request that reads."""

CREATE_SECONDS: Final = 2.0
"""Timeout of a request that creates something, on which the servers have to agree."""

_CLOSE_SECONDS: Final = 0.5
_PING_SECONDS: Final = 30  # long, because the answer to a ping comes behind everything delivered before it
_HEADER_BYTES: Final = 256  # an upper bound of the headers that we send
_MAX_UNREAD_BYTES: Final = 256 * 1024 * 1024

Delivery: TypeAlias = Msg
"""A message as the client library delivers it."""

Subscription: TypeAlias = ClientSubscription
"""A subscription of the client library."""


class _Client(Client):
    """The client, which sends no credentials in plain text if the URL requires TLS."""

    def __init__(self, *, is_secure: bool) -> None:
        super().__init__()
        self._is_secure = is_secure

    def _connect_command(self) -> bytes:
        # The library lets the server decide whether to use TLS, even for a URL with tls://.
        if self._is_secure and not self._server_info.get("tls_required"):
            raise nats.errors.Error("server does not require TLS; no credentials were sent")
        return super()._connect_command()


class Connection:
    """A connection to one server, until its first problem: then `ended` is set, and `fault` has the reason."""

    def __init__(self, address: Address) -> None:
        self.ended: asyncio.Event = asyncio.Event()
        self.fault: str = "the connection was closed"
        self.prefix: str = key_prefix(address.bucket)
        self.stream: str = stream_name(address.bucket)
        self._address = address
        self._client = _Client(is_secure=address.is_secure)
        self._is_denied = False
        self._inbox = ""
        # Each publish has its own token, so that a late reply is not taken for that of a later publish.
        self._tokens = count()
        self._waiting: dict[str, Callable[[Delivery], None]] = {}
        self._stirred = asyncio.Event()

    async def open(self, server: str, tls: ssl.SSLContext | None, tls_hostname: str | None) -> None:
        """Connect to a server. Raises `Unreachable`, or `PermissionError` if it rejects the credentials."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                with _cancellable():
                    await self._connect(server, tls, tls_hostname)
            # Problems before the connection succeeded do not count.
            self.ended.clear()
            self._inbox = self._client.new_inbox()
            await self._client.subscribe(f"{self._inbox}.*", cb=self._on_reply)
        except BaseException as error:
            # If the library cannot connect to a server, it raises an error without the reason.
            reason = self.fault if isinstance(error, nats.errors.NoServersError) else _reason(error)
            await self.close()
            if not isinstance(error, Exception):
                raise
            if "authorization" in reason.lower() or "authentication" in reason.lower():
                raise PermissionError(f"{shown_text(server)} rejects the credentials") from None
            raise Unreachable(f"{shown_text(server)}: {reason}") from None

    async def close(self) -> None:
        """Disconnect. Closing twice does no harm."""
        # Errors do not matter any more. With TLS the library can wait for ever.
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._client.close()
        self.ended.set()

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
    def is_clustered(self) -> bool:
        """Whether the server is one of several."""
        return "cluster" in self._client._server_info  # noqa: SLF001  # the library has no public name for it

    @property
    def max_value_bytes(self) -> int:
        """The size of the largest value that the server and the readers accept."""
        return min(self._client.max_payload - _HEADER_BYTES, wire.MAX_ORDER_BOOK_BYTES)

    async def state(self) -> State:
        """Return the state of the bucket, from the server that leads.

        Raises `Unreachable`, `NoBucket` or `Misconfigured`. So each reader and publisher that reads it checks the
        configuration, also of a bucket that is created again or edited.
        """
        return state_of(await self.request(f"STREAM.INFO.{self.stream}", None, REQUEST_SECONDS))

    async def create(self, replicas: int | None) -> None:
        """Create the bucket, on three servers if there is a cluster, unless `replicas` says on how many.

        An existing bucket is not changed. Raises `Unreachable`, or `Rejected`.
        """
        subject = f"STREAM.CREATE.{self.stream}"
        try:
            await self.request(subject, configuration(self._address.bucket, replicas or 3), CREATE_SECONDS)
        except Rejected as rejected:
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
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            with _cancellable():
                message = await self._client.request(f"$JS.API.{subject}", payload, timeout=seconds)
            answer = json.loads(message.data)
        except (OSError, nats.errors.Error, ValueError) as error:
            self._require_permission()
            if isinstance(error, nats.errors.NoRespondersError):
                raise Unanswered("JetStream is not available") from None
            if isinstance(error, TimeoutError):
                raise Unanswered(f"no answer within {seconds:g} seconds") from None
            raise self._unreachable(error) from None
        if "error" in answer:
            raise error_of(answer["error"])
        return answer

    async def publish(
        self, key: str, value: bytes, headers: Mapping[str, str], on_reply: Callable[[Delivery], None]
    ) -> None:
        """Send a message. `on_reply` is called with its reply, unless `forget_replies` is called before."""
        token = str(next(self._tokens))
        self._waiting[token] = on_reply
        try:
            with _cancellable():
                await self._client.publish(
                    f"{self.prefix}{key}", value, reply=f"{self._inbox}.{token}", headers=dict(headers)
                )
        except (OSError, nats.errors.Error) as error:
            raise self._unreachable(error) from None

    async def replied(self, seconds: float) -> None:
        """Wait for a reply. Raises `Unreachable` if none comes in time, or the connection ends; `PermissionError`."""
        try:
            async with asyncio.timeout(seconds):
                await self._stirred.wait()
        except TimeoutError:
            raise Unreachable(f"no answer within {seconds:g} seconds") from None
        self._require_permission()
        if self.ended.is_set():
            raise Unreachable(self.fault)
        self._stirred.clear()

    def forget_replies(self) -> None:
        """Ignore all replies that have not arrived yet."""
        self._waiting.clear()

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

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(self.fault if self.ended.is_set() else _reason(error))

    def _require_permission(self) -> None:
        if self._is_denied:
            raise PermissionError(self.fault)

    async def _on_reply(self, message: Delivery) -> None:
        on_reply = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if on_reply is not None:
            on_reply(message)
            self._stirred.set()

    async def _on_error(self, error: Exception) -> None:
        self.fault = _reason(error)
        if "permissions violation" in self.fault.lower():
            self._is_denied = True
        self.ended.set()
        self._stirred.set()

    async def _on_closed(self) -> None:
        if not self.ended.is_set():
            # Only now the library has the error that the server sent before it closed the connection.
            self.fault = _reason(self._client.last_error)
        self.ended.set()
        self._stirred.set()


@contextmanager
def _cancellable() -> Iterator[None]:
    """Raise `CancelledError` after a call of the client library that swallowed a cancellation.

    On Python 3.11 `asyncio.wait_for` does that if its future is done at the moment of the cancellation.
    """
    task = asyncio.current_task()
    try:
        yield
    finally:
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "the connection was closed"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return shown_text(reason_of(error).removeprefix("nats: ").strip("'"))


def _is_ip_address(host: str | None) -> bool:
    try:
        ip_address(host or "")
    except ValueError:
        return False
    return True
