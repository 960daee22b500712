"""A bucket of NATS JetStream, as its servers tell of it: the one place that knows the client library.

A connection is not mended: whatever goes wrong with one ends it, and whoever needs another connects anew. So nothing
that was to be sent over the former one is sent later, and no consumer is waited for that is there no longer.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import count
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import nats.errors
from attrs import frozen
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from market_index_feeds.nats.address import Address

CONNECT_SECONDS: Final = 2.0
"""How long one server is waited for, until another is tried."""

ROUND_SECONDS: Final = 5.0
"""How long all of them are tried, one after the other, until somebody else decides whether to go on."""

REQUEST_SECONDS: Final = 1.0
"""How long an answer is waited for."""

MAKE_SECONDS: Final = 2.0
"""How long it is waited for that servers agree on something new."""

_OPERATION_HEADER: Final = "KV-Operation"
_MARKER_HEADER: Final = "Nats-Marker-Reason"
_EXPECTED_HEADER: Final = "Nats-Expected-Last-Subject-Sequence"

LOOK_SECONDS: Final = 0.5
"""How often it is seen to that what was delivered is what the bucket holds."""

DEAF_SECONDS: Final = 1.0
"""How long nothing may be delivered while the bucket holds more."""

_CLOSE_SECONDS: Final = 0.5
_LOOK_AGAIN_SECONDS: Final = 0.1
_REACH_SECONDS: Final = 0.005
_LOOKS: Final = 4  # the servers may answer for different moments while one of them takes over from another
_READ_AT_ONCE: Final = 256

# The error codes of the servers.
NO_STREAM: Final = 10059
_NO_MESSAGE: Final = 10037
_NO_CLUSTER: Final = 10074
_UNAVAILABLE: Final = 503
WRONG_SEQUENCE: Final = {10071, 10164}
TOO_LARGE: Final = {10054}

_HEADER_LENGTH: Final = 256  # and no more, of what we send
_WINDOW: Final = 256
_WINDOW_LENGTH: Final = 4 * 1024 * 1024
_SECOND: Final = 1_000_000_000  # in the unit of the servers
_MOST_UNREAD: Final = 256 * 1024 * 1024


class Unreachable(Exception):
    """Why no server answered, or the connection ended."""


class Unanswered(Unreachable):
    """A server is there, but those that would have to answer do not: they may have to agree first who leads."""


class Refused(Exception):
    """What a server says that it will not do."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


class _NoMessage(Refused):
    """Nothing stands under a key."""


class NoBucket(Exception):
    """There is no such bucket."""


class Lost(Exception):
    """Why what was delivered is not what the bucket holds, and will not be."""


@frozen
class State:
    """A bucket at one moment: when it was made, the sequence of its last message, how many keys, and bytes, it holds.

    A key that was deleted counts, for as long as the message stands that says so.
    """

    created: str
    last_sequence: int
    keys: int
    length: int


@frozen(slots=True, eq=False)
class Message:
    """What stands under a key: its value, or None where it was deleted; its sequence, and its time in nanoseconds."""

    key: str
    value: bytes | None
    headers: Mapping[str, str]
    sequence: int
    time: int


@frozen(slots=True, eq=False)
class Write:
    """What is to stand under a key, None for that it is deleted, if the last message of the key has that sequence."""

    key: str
    value: bytes | None
    headers: Mapping[str, str]
    expected: int


class _Client(Client):
    """The client, that sends nothing in plain text where TLS was asked for."""

    def __init__(self, *, is_secure: bool) -> None:
        super().__init__()
        self._is_secure = is_secure

    def _connect_command(self) -> bytes:
        # The client leaves it to the server whether there is TLS, even where the URL says tls://.
        if self._is_secure and not self._server_info.get("tls_required"):
            raise nats.errors.Error("it does not ask for TLS, and was told nothing")
        return super()._connect_command()


class Cluster:
    """The servers of an address, those that they told of, and the connection to one of them.

    `most` is the most bytes of a value that the server took which was connected to last.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        # And by which name a server shows who it is, where that is not its own.
        self._servers: dict[str, str | None] = dict.fromkeys(address.servers)
        self._last = ""
        self.connection: Connection | None = None
        self.most = 0

    async def connect(self) -> Connection:
        """Return the connection to one of the servers, a new one where the last has ended.

        Raises `Unreachable` when there is none, `PermissionError` when one refuses the credentials, and `OSError` when
        a file that the address names cannot be used.
        """
        if self.connection is None or self.connection.ended.is_set():
            await self.disconnect()
            self.connection = await self._connect_anew()
            self.most = self.connection.most
        return self.connection

    async def disconnect(self) -> None:
        """Let go of the server."""
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def _connect_anew(self) -> Connection:
        """Connect, in any order; to the server that was connected to last where no other answers."""
        tls = self._address.tls()
        failure = Unreachable("there is no server")
        others = list(self._servers)
        random.shuffle(others)
        with suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS):
                for server in sorted(others, key=lambda server: server == self._last):
                    connection = Connection(self._address)
                    try:
                        await connection.open(server, tls, self._servers[server])
                    except Unreachable as error:
                        failure = error
                    else:
                        self._last = server
                        # What was told of before may be gone.
                        self._servers = connection.told_of | dict.fromkeys(self._address.servers)
                        return connection
        raise failure


class Connection:
    """A connection to a server, until something goes wrong with it: `ended` is set then, and `fault` says why."""

    def __init__(self, address: Address) -> None:
        self.ended = asyncio.Event()
        self.fault = "the connection was closed"
        self._address = address
        self._client = _Client(is_secure=address.is_secure)
        self._stream = f"KV_{address.bucket}"
        self._prefix = f"$KV.{address.bucket}."
        self._is_denied = False
        self._answers = ""
        # An answer that comes too late is not taken for that of a later question.
        self._tokens = count()
        self._unanswered: dict[str, Write] = {}
        self.in_doubt: set[str] = set()
        self._answered: Callable[[Write, int | Refused], object] | None = None
        self._stirred = asyncio.Event()

    async def open(self, server: str, tls: ssl.SSLContext | None, tls_hostname: str | None) -> None:
        """Connect to a server. Raises `Unreachable`, or `PermissionError` where it refuses the credentials."""
        address = self._address
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                with _cancellable():
                    await self._client.connect(
                        [server],
                        name="market-index",
                        allow_reconnect=False,
                        max_reconnect_attempts=1,
                        reconnect_time_wait=0,
                        # Seldom: it is behind all that is delivered meanwhile that the server answers.
                        ping_interval=30,
                        tls=tls,
                        tls_hostname=tls_hostname,
                        user=address.user,
                        password=address.password,
                        token=address.token,
                        user_credentials=address.creds,
                        error_cb=self._note,
                        closed_cb=self._end,
                    )
            # What went wrong before it succeeded does not matter.
            self.ended.clear()
            self._answers = self._client.new_inbox()
            await self._client.subscribe(f"{self._answers}.*", cb=self._answer)
        except BaseException as error:
            # Of a server that cannot be connected to the client says no more than that there is none.
            reason = self.fault if isinstance(error, nats.errors.NoServersError) else _reason(error)
            await self.close()
            if not isinstance(error, Exception):
                raise
            if "authorization" in reason.lower() or "authentication" in reason.lower():
                raise PermissionError(f"{server} refuses the credentials") from None
            raise Unreachable(f"{server}: {reason}") from None

    async def close(self) -> None:
        """Let go of the server. Closing twice does no harm."""
        # Whatever goes wrong now, the connection is of no more use. With TLS the client can wait for ever.
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._client.close()
        self.ended.set()

    @property
    def told_of(self) -> dict[str, str | None]:
        """The servers that this one tells of, and the name by which each shows who it is where that is not its own."""
        scheme, named = ("tls", self._address.servers[0]) if self._address.is_secure else ("nats", None)
        hostname = None if named is None else urlsplit(named).hostname
        return {
            f"{scheme}://{server.netloc}": hostname if _is_number(server.hostname) else None
            for server in self._client.discovered_servers
        }

    @property
    def is_clustered(self) -> bool:
        """Whether the server is one of several."""
        return "cluster" in self._client._server_info  # noqa: SLF001  # what a server says of itself is not public

    @property
    def most(self) -> int:
        """The most bytes of a value that the server takes."""
        return self._client.max_payload - _HEADER_LENGTH

    async def state(self) -> State:
        """Return the state of the bucket, as the server knows it that leads. Raises `Unreachable`, or `NoBucket`."""
        return state_of(await self._ask(f"STREAM.INFO.{self._stream}"))

    async def make(self, replicas: int | None) -> None:
        """Make the bucket; on three servers where there is a cluster, unless it is said on how many.

        One that is there is left as it is. Raises `Unreachable`, or `Refused`.
        """
        configuration = {
            "name": self._stream,
            "subjects": [f"{self._prefix}>"],
            "max_msgs_per_subject": 1,
            "storage": "file",
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "num_replicas": replicas or 3,
        }
        try:
            await self._ask(f"STREAM.CREATE.{self._stream}", configuration, MAKE_SECONDS)
        except Refused as refused:
            if refused.code != _NO_CLUSTER or replicas is not None:
                raise
            await self._ask(f"STREAM.CREATE.{self._stream}", configuration | {"num_replicas": 1}, MAKE_SECONDS)

    async def last(self, key: str) -> Message | None:
        """Return what stands under a key now, None for nothing; `>` is any key. Raises `Unreachable`, or `NoBucket`."""
        try:
            answer = await self._ask(f"STREAM.MSG.GET.{self._stream}", {"last_by_subj": f"{self._prefix}{key}"})
        except _NoMessage:
            return None
        found = answer["message"]
        headers = _headers(b64decode(found.get("hdrs", "")))
        value = None if _is_deleted(headers) else b64decode(found.get("data", ""))
        return Message(found["subject"].removeprefix(self._prefix), value, headers, found["seq"], 0)

    async def write(
        self, writes: Iterable[Write], answered: Callable[[Write, int | Refused], object], patience: float
    ) -> None:
        """Write these, many at the same time, and tell of each what came of it: its sequence, or why it was refused.

        Raises `Unreachable` when nothing was answered for as long as `patience`, in seconds, or the connection ended;
        and `PermissionError`. Then `in_doubt` has the keys of what was sent and may be written, or be written yet.
        """
        self._answered = answered
        length = 0
        try:
            for write in writes:
                while self._unanswered and (len(self._unanswered) >= _WINDOW or length >= _WINDOW_LENGTH):
                    await self._answer_comes(patience)
                    length = sum(len(waiting.value or b"") for waiting in self._unanswered.values())
                length += len(write.value or b"")
                await self._send(str(next(self._tokens)), write)
            while self._unanswered:
                await self._answer_comes(patience)
        finally:
            self.in_doubt = {waiting.key for waiting in self._unanswered.values()}
            self._unanswered.clear()
            self._answered = None

    async def watch(self, *, headers_only: bool = False) -> Watch:
        """Return every value of the bucket, and then every change. Raises `Unreachable`, `NoBucket`, or `Refused`."""
        inbox = self._client.new_inbox()
        state = await self.state()
        watch = Watch(self, state, self._prefix)
        name = inbox.rpartition(".")[2]
        filtered = f"{self._prefix}>"
        subscription = await self._client.subscribe(inbox, cb=watch.put, pending_bytes_limit=_MOST_UNREAD)
        consumer = {
            "name": name,
            "deliver_subject": inbox,
            "deliver_policy": "last_per_subject",
            "filter_subject": filtered,
            "ack_policy": "none",
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": 5 * _SECOND,
            "inactive_threshold": 10 * _SECOND,
            "mem_storage": True,
            "num_replicas": 1,
            "headers_only": headers_only,
        }
        request = {"stream_name": self._stream, "config": consumer}
        try:
            await self._ask(f"CONSUMER.CREATE.{self._stream}.{name}.{filtered}", request, MAKE_SECONDS)
        except BaseException:
            await self.forget(subscription)
            raise
        watch.begin(subscription)
        return watch

    async def forget(self, subscription: Subscription) -> None:
        """Have nothing more delivered by a subscription."""
        with suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()

    async def reply(self, subject: str) -> None:
        """Tell the server that what came before was read."""
        with suppress(nats.errors.Error, OSError):
            await self._client.publish(subject)

    async def _ask(self, subject: str, body: object = None, seconds: float = REQUEST_SECONDS) -> Any:
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            with _cancellable():
                message = await self._client.request(f"$JS.API.{subject}", payload, timeout=seconds)
            answer = json.loads(message.data)
        except (OSError, nats.errors.Error, ValueError) as error:
            self._require_permission()
            if isinstance(error, nats.errors.NoRespondersError):
                raise Unanswered("JetStream is not there") from None
            if isinstance(error, TimeoutError):
                raise Unanswered(f"no answer within {seconds:g} seconds") from None
            raise self._unreachable(error) from None
        if "error" in answer:
            raise _error(answer["error"])
        return answer

    async def _send(self, token: str, write: Write) -> None:
        if write.value is not None and len(write.value) > self.most and self._answered is not None:
            # Another server may take less than the one before.
            self._answered(write, Refused(min(TOO_LARGE), "message size exceeds maximum allowed"))
            return
        headers = dict(write.headers) | {_EXPECTED_HEADER: str(write.expected)}
        if write.value is None:
            headers[_OPERATION_HEADER] = "DEL"
        self._unanswered[token] = write
        try:
            await self._client.publish(
                f"{self._prefix}{write.key}", write.value or b"", reply=f"{self._answers}.{token}", headers=headers
            )
        except (OSError, nats.errors.Error) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(self.fault if self.ended.is_set() else _reason(error))

    async def _answer_comes(self, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await self._stirred.wait()
        except TimeoutError:
            raise Unreachable(f"no answer within {patience:g} seconds") from None
        self._require_permission()
        if self.ended.is_set():
            raise Unreachable(self.fault)
        self._stirred.clear()

    async def _answer(self, message: Msg) -> None:
        write = self._unanswered.pop(message.subject.rpartition(".")[2], None)
        if write is None or self._answered is None:
            # Of an earlier call, which did not wait for it any longer.
            return
        self._stirred.set()
        if message.headers and message.headers.get("Status") == "503":
            self._answered(write, Refused(NO_STREAM, "there is no such bucket"))
            return
        answer = json.loads(message.data)
        if "error" in answer:
            error = answer["error"]
            self._answered(write, Refused(error.get("err_code", 0), error.get("description", "")))
        else:
            self._answered(write, answer["seq"])

    def _require_permission(self) -> None:
        if self._is_denied:
            raise PermissionError(self.fault)

    async def _note(self, error: Exception) -> None:
        """Take down what the client library tells of what went wrong."""
        self.fault = _reason(error)
        if "permissions violation" in self.fault.lower():
            self._is_denied = True
        self.ended.set()
        self._stirred.set()

    async def _end(self) -> None:
        if not self.ended.is_set():
            # What the server says before it closes the connection is told here alone.
            self.fault = _reason(self._client.last_error)
        self.ended.set()
        self._stirred.set()


class Watch:
    """Every value of a bucket as it stands, and then every change, in the order of their sequences.

    What it delivers is compared with the bucket again and again: `agreed_at` is when it was last found to be the same,
    by the monotonic clock, None before; `revision` is the sequence that it has come to. That tells what no delivery
    tells: that the consumer is gone, that the bucket is another one, was purged, or was rolled back.
    """

    def __init__(self, connection: Connection, state: State, prefix: str) -> None:
        self.state = state
        self.revision = 0
        self.sequence = 0
        self.agreed_at: float | None = None
        self._connection = connection
        self._prefix = prefix
        self._delivered = 0
        self._delivered_at = monotonic()
        self._keys: set[str] = set()
        # The sequences that brought a key for the first time, and are above those that the servers knew of.
        self._first_seen: deque[int] = deque()
        self._incoming: deque[Msg] = deque()
        self._stirred = asyncio.Event()
        self._failure: Exception | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, subscription: Subscription) -> None:
        """Begin to compare, once there is something to be delivered by a subscription."""
        self._subscription = subscription
        self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._end())]

    async def next(self) -> list[Message]:
        """Wait for something new, and return the messages there are: none when it is `agreed_at` that is new.

        Raises `Lost`, `NoBucket` or `Unreachable` when no more will come.
        """
        await self._stirred.wait()
        self._stirred.clear()
        if self._failure is not None:
            raise self._failure
        messages: list[Message] = []
        while self._incoming and len(messages) < _READ_AT_ONCE:
            delivered = self._incoming.popleft()
            if delivered.subject.startswith(self._prefix):
                messages.append(self._read(delivered))
            else:
                await self._heed(delivered)
        if self._incoming:
            self._stirred.set()
            # Let others have their turn.
            await asyncio.sleep(0)
        return messages

    async def close(self) -> None:
        """Watch no longer."""
        for task in self._tasks:
            task.cancel()
        await self._connection.forget(self._subscription)

    async def put(self, message: Msg) -> None:
        """Take what was delivered."""
        self._incoming.append(message)
        self._stirred.set()

    def _read(self, delivered: Msg) -> Message:
        # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<number>.<time>.<pending>, or with a domain and an account
        # before the stream, and something after it all.
        tokens = delivered.reply.split(".")
        sequence, number, time = (int(token) for token in (tokens[5:8] if len(tokens) == 9 else tokens[7:10]))
        if number != self._delivered + 1 or sequence <= self.sequence:
            raise Lost("something was delivered twice, or not at all")
        self._delivered, self._delivered_at = number, monotonic()
        self.sequence = sequence
        self.revision = max(self.revision, sequence)
        key = delivered.subject.removeprefix(self._prefix)
        if key not in self._keys:
            self._keys.add(key)
            self._first_seen.append(sequence)
        headers = delivered.headers or {}
        return Message(key, None if _is_deleted(headers) else delivered.data, headers, sequence, time)

    async def _heed(self, control: Msg) -> None:
        """Heed what the server says of the delivery itself."""
        headers = control.headers or {}
        # It waits until what it has sent so far is read; by now it is.
        subject = control.reply or headers.get("Nats-Consumer-Stalled")
        if subject:
            await self._connection.reply(subject)

    async def _look(self) -> None:
        """Compare, again and again, what was delivered with what the bucket holds."""
        disagreed = 0
        try:
            while disagreed < _LOOKS:
                if await self._agrees():
                    disagreed = 0
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    disagreed += 1
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except (Lost, NoBucket, Unreachable, Refused, PermissionError) as error:
            self._fail(error)
        else:
            self._fail(Lost("it was purged or rolled back"))

    async def _agrees(self) -> bool:
        """Whether what was delivered is what the bucket holds; raise `Lost` where it never will be."""
        asked_at, sequence = monotonic(), self.sequence
        try:
            state = await self._connection.state()
        except Unreachable:
            if self._delivered_at < asked_at or self._connection.ended.is_set():
                raise
            # The answer is behind all that is delivered.
            return await self._agrees()
        if state.created != self.state.created:
            raise Lost("it was deleted and made again")
        if state.last_sequence < sequence:
            return False
        await self._reach(state)
        if not self._holds(state):
            return False
        self.agreed_at = asked_at
        self.revision = max(self.revision, state.last_sequence)
        self._stirred.set()
        return True

    async def _reach(self, state: State) -> None:
        """Wait until all was delivered that was in the bucket then; raise `Lost` when that does not go on."""
        began = monotonic()
        # The last message may have been taken away, so that no delivery comes to its sequence.
        last_standing = state.last_sequence if state.keys else 0
        asked = False
        while self.sequence < last_standing:
            await asyncio.sleep(_REACH_SECONDS)
            silent = monotonic() - max(self._delivered_at, began)
            if silent >= DEAF_SECONDS:
                raise Lost("nothing is delivered any longer")
            if silent >= DEAF_SECONDS / 2 and not asked:
                asked = True
                last = await self._connection.last(">")
                last_standing = min(last_standing, last.sequence if last else 0)

    def _holds(self, state: State) -> bool:
        """Whether as many keys were delivered as the bucket held then: each that it holds was, so they are the same."""
        while self._first_seen and self._first_seen[0] <= state.last_sequence:
            self._first_seen.popleft()
        return len(self._keys) - len(self._first_seen) == state.keys

    async def _end(self) -> None:
        await self._connection.ended.wait()
        self._fail(Unreachable(self._connection.fault))

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
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


def state_of(answer: Mapping[str, Any]) -> State:
    """Return the state that a server tells of, or raise `Unanswered` where it cannot know it."""
    if not answer.get("cluster", {"leader": "alone"}).get("leader"):
        # So answers one that lost what it had stored, until it has found the others: that there is nothing.
        raise Unanswered("the servers have not agreed who leads")
    state = answer["state"]
    return State(answer["created"], state["last_seq"], state.get("num_subjects", 0), state["bytes"])


def _is_deleted(headers: Mapping[str, str]) -> bool:
    return headers.get(_OPERATION_HEADER) in {"DEL", "PURGE"} or _MARKER_HEADER in headers


def _headers(text: bytes) -> dict[str, str]:
    """Read headers as the servers keep them: a first line that names the version, then a name and a value a line."""
    lines = str(text, "utf-8", "replace").split("\r\n")[1:]
    return {name.strip(): value.strip() for name, mark, value in (line.partition(":") for line in lines) if mark}


def _error(answer: Mapping[str, Any]) -> Exception:
    code, description = answer.get("err_code", 0), answer.get("description", "")
    if code == NO_STREAM:
        return NoBucket("there is no such bucket")
    if code == _NO_MESSAGE:
        return _NoMessage(code, description)
    return Unanswered(description) if answer.get("code") == _UNAVAILABLE else Refused(code, description)


def _reason(error: BaseException | None) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    text = getattr(error, "strerror", None) or str(error or "the connection was closed") or type(error).__name__
    return text.removeprefix("nats: ").strip("'")


def _is_number(host: str | None) -> bool:
    try:
        ip_address(host or "")
    except ValueError:
        return False
    return True
