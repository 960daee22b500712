"""A bucket: the requests that read and write it.

Theory of operation
===================

A bucket is a stream of the servers that stores the last message of each key. Each message has a sequence, which
increases by one with each message of the stream.

A publisher stores a batch of messages: all or none, and only if the stream has the sequence that it expects. A reader
asks for pages of the messages after a sequence (`$JS.API.DIRECT.GET`). The server reads a page while no batch is
committed. Consumers are not isolated in this way: they deliver mixtures of two batches.

After a batch, a publisher sends an empty message to a subject that readers subscribe to, which wakes them.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import nats.errors
from attrs import field, frozen
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import PubAck, StreamConfig, StreamInfo
from nats.js.errors import NoStreamResponseError

from market_index_feeds.errors import NotStored, Rejected, Unreachable
from market_index_feeds.nats.address import BucketAddress
from market_index_feeds.nats.connection import NO_BUCKET, Connection, shown_text

MAX_BATCH: Final = 1000
"""How many messages the servers accept in one batch."""

HEADER_BYTES: Final = 4096
"""An upper bound of the headers of a message, which count as a part of it."""

# Error codes of the servers.
WRONG_SEQUENCE: Final = {10071, 10164}
_NO_CLUSTER: Final = 10074
_NO_MESSAGE: Final = 10037

_PAGE: Final = {"batch": 2048, "max_bytes": 2 * 1024 * 1024}

# Otherwise the servers acknowledge values and delete them later, or show an older value once the last one is deleted.
_SETTINGS: Final[dict[str, Any]] = {
    "max_msgs_per_subject": 1,
    "max_age": 0,
    "discard": "new",
    "retention": "limits",
    "allow_direct": True,
}
_BATCHES: Final[dict[str, Any]] = {"allow_atomic": True, "allow_direct": True}
_EDIT: Final = "--max-msgs-per-subject=1 --max-age=0s --discard=new --retention=limits --allow-direct"


@frozen(eq=False)
class Message:
    """The message stored under a key. `value` is None if it deletes the key. The names of headers are in lower case."""

    key: str
    value: bytes | None
    headers: Mapping[str, str]
    sequence: int


@frozen(eq=False)
class _Page:
    """The messages of a page; `pending` is how many messages follow it."""

    messages: list[Message] = field(factory=list)
    pending: Future[int] = field(factory=lambda: asyncio.get_running_loop().create_future())


class Bucket:
    """A bucket. If there is an `on_change`, it is called soon after each change.

    `max_value_bytes` is the size of the largest value that the servers accept, as far as it is known.
    """

    def __init__(self, address: BucketAddress) -> None:
        self.connection: Connection = Connection(address, self._subscribe)
        self.on_change: Callable[[], None] | None = None
        self.max_value_bytes: int = 0
        self._stream = f"KV_{address.bucket}"
        self._prefix = f"$KV.{address.bucket}."
        # Publishers send an empty message to this subject after each change.
        self._hints = f"market-index.{address.bucket}"
        self._page: _Page
        self._inbox = ""

    def subject(self, key: str) -> str:
        """Return the subject of the messages of a key."""
        return f"{self._prefix}{key}"

    async def open(self, *, create: bool) -> None:
        """Create a missing bucket, and let an existing one accept batches. Raises `Unreachable` or `Rejected`."""
        try:
            config = (await self.connection.ask(lambda stream: stream.stream_info(self._stream))).config
        except Rejected as error:
            if error.code != NO_BUCKET or not create:
                raise
            config = await self._create()
        wanted = config.evolve(**_BATCHES)
        _require_settings(wanted)
        if config != wanted:
            await self.connection.ask(lambda stream: stream.update_stream(wanted))
        await self.info()

    async def info(self) -> StreamInfo:
        """Return the state of the bucket as its leader reports it. Each call also checks its configuration.

        A deleted key counts as one message: the one that deletes it. Raises `Unreachable` or `Rejected`.
        """
        info = await self.connection.ask(lambda stream: stream.stream_info(self._stream))
        if info.cluster is not None and not info.cluster.leader:
            # A server that lost its disk reports an empty bucket until it has found the others.
            raise Unreachable("the servers have not agreed who leads")
        _require_settings(info.config)
        limits = [info.config.max_msg_size or 0, (await self.connection.client()).max_payload]
        self.max_value_bytes = min(size for size in limits if size > 0) - HEADER_BYTES
        return info

    async def find(self, **query: Any) -> Message | None:
        """Return the message with a `seq`, or the last one of a `subject`, from the leader. Raises as `info`."""
        try:
            found = await self.connection.ask(lambda stream: stream.get_msg(self._stream, **query))
        except Rejected as error:
            if error.code != _NO_MESSAGE:
                raise
            return None
        return self._message(found.subject or "", found.data or b"", found.headers or {}, found.seq or 0)

    async def read_page(self, after: int) -> tuple[list[Message], int]:
        """Return messages after a sequence, one of each key, and how many follow them. Raises `Unreachable`.

        If none follow, the messages are those of one moment between two changes.
        """
        client = await self.connection.client()
        page = self._page = _Page()
        body = json.dumps({"seq": after + 1, "next_by_subj": f"{self._prefix}>", **_PAGE}).encode()
        await self.connection.answer(client.publish(f"$JS.API.DIRECT.GET.{self._stream}", body, self._inbox))
        pending = await self.connection.answer(page.pending)
        return page.messages, pending

    async def commit(self, messages: Sequence[tuple[str, bytes, dict[str, str]]], expected: int, batch: str) -> int:
        """Store all messages or none, if `expected` is the last sequence. Return the sequence of the last message.

        `batch` is a unique id. If a disk or an account is full, the servers may store a part, without an answer or with
        an error.

        Raises:
            NotStored: They are not stored.
            Rejected: Trying again does not help. With a code of `WRONG_SEQUENCE`, another change was stored before.
            Unreachable: They may be stored, now or later.
        """
        headers = [dict(given) for _, _, given in messages]
        headers[0]["Nats-Expected-Last-Sequence"] = str(expected)
        if len(messages) > 1:
            for number, one in enumerate(headers, 1):
                one |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            headers[-1]["Nats-Batch-Commit"] = "1"
        client = await self.connection.client()

        async def send(stream: JetStreamContext) -> PubAck:
            for (key, value, _), one in zip(messages[:-1], headers, strict=False):
                await client.publish(self.subject(key), value, headers=one)
            key, value, _ = messages[-1]
            return await stream.publish(self.subject(key), value, headers=headers[-1])

        try:
            sequence = (await self.connection.ask(send, sum(len(value) for _, value, _ in messages))).seq
        except NoStreamResponseError:
            await self.info()  # raises Rejected if the bucket is gone
            raise NotStored("no server stores its messages") from None
        with suppress(nats.errors.Error, OSError):
            await client.publish(self._hints)
        return sequence

    async def _create(self) -> StreamConfig:
        """Create the bucket. Return its configuration."""
        config = StreamConfig(
            **_SETTINGS | _BATCHES,
            name=self._stream,
            subjects=[f"{self._prefix}>"],
            allow_rollup_hdrs=True,
            deny_delete=True,
        )
        return (await create_stream(self.connection, config)).config

    async def _subscribe(self, client: Client) -> None:
        self._inbox = client.new_inbox()
        await client.subscribe(self._inbox, cb=self._on_page)
        if self.on_change is not None:
            await client.subscribe(self._hints, cb=self._on_hint)

    async def _on_page(self, delivery: Msg) -> None:
        headers = delivery.headers or {}
        page, status = self._page, headers.get("Status")
        if status is None:
            sequence = int(headers["Nats-Sequence"])
            page.messages.append(self._message(headers["Nats-Subject"], delivery.data, headers, sequence))
        elif status in {"204", "404"}:  # the end of the page; no message follows
            page.pending.set_result(int(headers.get("Nats-Num-Pending", "0")))
        else:
            text = headers.get("Description", "no server has the bucket")
            page.pending.set_exception(Unreachable(f"status {status}: {shown_text(text)}"))

    def _message(self, subject: str, value: bytes, given: Mapping[str, str], sequence: int) -> Message:
        headers = {name.lower(): text for name, text in given.items()}
        # The command `nats kv` writes PURGE, too, and the servers write a marker where a value has expired.
        is_deletion = headers.get("kv-operation") in {"DEL", "PURGE"} or "nats-marker-reason" in headers
        return Message(subject.removeprefix(self._prefix), None if is_deletion else value, headers, sequence)

    async def _on_hint(self, _: Msg) -> None:
        assert self.on_change is not None  # noqa: S101  # otherwise there is no subscription
        self.on_change()


async def create_stream(connection: Connection, config: StreamConfig) -> StreamInfo:
    """Create a stream, on three servers if there is a cluster. Raises as `Connection.ask`."""
    try:
        return await connection.ask(lambda stream: stream.add_stream(config, num_replicas=3))
    except Rejected as error:
        if error.code != _NO_CLUSTER:
            raise
    return await connection.ask(lambda stream: stream.add_stream(config, num_replicas=1))


def _require_settings(config: StreamConfig) -> None:
    """Raise `Rejected` unless a bucket stores the last value of each key until it is overwritten or deleted."""
    if config.mirror is not None:
        raise Rejected(f"the bucket must not be a mirror, which copies parts of changes: follow {config.mirror.name}")
    wrong = [f"{name} {getattr(config, name)}" for name, value in _SETTINGS.items() if getattr(config, name) != value]
    if wrong:
        raise Rejected(
            "the bucket must store the last value of each key, and nothing else, and allow direct reads, got "
            f"{', '.join(wrong)}; run: nats stream edit {shown_text(str(config.name))} {_EDIT}"
        )
