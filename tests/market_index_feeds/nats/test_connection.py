"""Connections: how long work is retried, the message of an outage, and what closing leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from nats.aio.client import Client

from market_index import LiveIndex
from market_index_feeds import Feed, Store
from market_index_feeds.nats import connection as connections
from market_index_feeds.nats import open_nats_source, open_nats_store
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import Message
from market_index_feeds.nats.connection import BucketConnection, BucketServers, RetryTimeouts
from market_index_feeds.nats.errors import Lost, Unreachable
from market_index_feeds.nats.watch import Watch
from tests import nats
from tests.market_index_feeds.made_up import book, spots

ONE_ATTEMPT = RetryTimeouts(connect=5, answer=5)
"""Shorter than an attempt takes by the clock of `Clock`."""

ATTEMPT_SECONDS = 100


class Clock:
    """The monotonic clock of `BucketServers.run`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connections, "monotonic", clock)
    return clock


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[int]:
    """Each of the first watches takes long and ends before it is in sync: the first after a message, and so on."""
    ends_after = [1, 2, 3]
    deliver = Watch.next

    async def deliver_and_end(self: Watch) -> list[Message]:
        messages = await deliver(self)
        if ends_after and self._delivered >= ends_after[0]:
            messages = messages[: ends_after.pop(0)]
            clock.now += ATTEMPT_SECONDS
            self._end(Lost("it was interrupted"))
        return messages

    monkeypatch.setattr(Watch, "next", deliver_and_end)
    return ends_after


@pytest.mark.parametrize(("reached", "attempts"), [((1, 2, 3), 4), ((1, 2, 2), 3), ((0,), 1), ((2, 1), 2)])
def test_work_is_retried_as_long_as_it_gets_further(
    nats_server: nats.Server, clock: Clock, reached: tuple[int, ...], attempts: int
):
    made = 0

    async def work(_: BucketConnection) -> str:
        nonlocal made
        made += 1
        clock.now += ATTEMPT_SECONDS
        if made <= len(reached):
            raise Lost("it was interrupted")
        return "done"

    async def run() -> str:
        servers = BucketServers(Address.parse(nats_server.bucket("books")))
        try:
            return await servers.run(work, ONE_ATTEMPT, lambda: reached[made - 1])
        finally:
            await servers.disconnect()

    if attempts > len(reached):
        assert asyncio.run(run()) == "done"
    else:
        with pytest.raises(Lost):
            asyncio.run(run())
    assert made == attempts


def test_a_late_join_that_gets_further_is_retried(store: Store, bucket: str, live: LiveIndex, slow: list[int]):
    store.publish(*(book(number, number) for number in range(1, 10)))
    with Feed(open_nats_source(bucket, ONE_ATTEMPT)) as feed:
        feed.start(live)
        assert spots(live) == {number: str(number) for number in range(1, 10)}
    assert not slow


def test_reading_what_is_stored_is_retried_as_long_as_it_gets_further(store: Store, bucket: str, slow: list[int]):
    books = [book(number, number) for number in range(1, 10)]
    store.publish(*books)
    with open_nats_store(bucket, wait=5) as other:
        assert other.replace(books[1:]).retracted == 1
    assert not slow


def test_the_message_does_not_depend_on_the_order_of_the_servers():
    """Otherwise the log would have a new problem at each attempt."""
    ports = sorted(map(str, (nats.spare_port() for _ in range(3))))
    address = Address.parse(f"nats://{','.join(f'127.0.0.1:{port}' for port in ports)}/books")

    async def work() -> set[str]:
        servers = BucketServers(address)
        messages = set()
        for _ in range(20):
            with pytest.raises(Unreachable) as raised:
                await servers.connect()
            messages.add(str(raised.value))
        return messages

    expected = "; ".join(f"nats://127.0.0.1:{port}: connection refused" for port in ports)
    assert asyncio.run(work()) == {expected}


def test_a_late_reply_is_not_taken_for_that_of_a_later_message(store: Store, bucket: str, nats_server: nats.Server):
    async def work() -> None:
        servers = BucketServers(Address.parse(bucket))
        connection = await servers.connect()

        async def reply(client: Client) -> None:
            await client.publish(f"{connection._inbox}.77", b'{"seq": 1}')

        await asyncio.to_thread(nats.plain, nats_server, reply)
        assert (await connection.state()).last_sequence == 0
        await servers.disconnect()

    asyncio.run(work())


def test_nothing_is_sent_over_a_closed_connection(store: Store, bucket: str):
    async def work() -> None:
        servers = BucketServers(Address.parse(bucket))
        connection = await servers.connect()
        await connection.close()
        with pytest.raises(Unreachable, match="the connection was closed"):
            await connection.state()
        assert await servers.connect() is not connection
        await servers.disconnect()

    asyncio.run(work())


async def _is_cut_off(connection: BucketConnection, server: nats.Server) -> None:
    """Close a connection with unsent messages to a server that hangs."""
    server.stop()
    for _ in range(300):  # 18 MB: more than the buffers of a socket take
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                (await connection.publish("key", bytes(60_000), {})).cancel()
    await connection.close()


async def _is_cancelled(connection: BucketConnection, _: nats.Server) -> None:
    """Close a connection in a task that is cancelled at the first moment when that is possible."""
    closing = asyncio.ensure_future(connection.close())
    await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing


@pytest.mark.parametrize("close", [_is_cut_off, _is_cancelled])
def test_a_closed_connection_has_no_open_socket(
    own_server: nats.Server, close: Callable[[BucketConnection, nats.Server], Awaitable[None]]
):
    async def work() -> None:
        before = _open_sockets()
        connection = await BucketServers(Address.parse(own_server.bucket("books"))).connect()
        assert _open_sockets() == before + 1
        await close(connection, own_server)
        await asyncio.sleep(0)
        assert _open_sockets() == before

    asyncio.run(work())


@pytest.mark.parametrize("steps", range(12))
def test_a_cancelled_attempt_to_connect_leaves_no_socket_and_no_task(own_server: nats.Server, steps: int):
    async def work() -> None:
        before = _open_sockets()
        servers = BucketServers(Address.parse(own_server.bucket("books")))
        connecting = asyncio.ensure_future(servers.connect())
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        with suppress(asyncio.CancelledError):
            await connecting
        await servers.disconnect()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)
        await asyncio.sleep(0)
        assert _open_sockets() == before

    asyncio.run(work())


def _open_sockets() -> int:
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing
            count += str(descriptor.readlink()).startswith("socket:")
    return count
