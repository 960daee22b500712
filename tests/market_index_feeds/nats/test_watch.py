"""The watch: before it is in sync, its deliveries are not taken for the content of the bucket."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic

import pytest

from market_index import LiveIndex
from market_index_feeds import FeedError, Store, StoreError, open_feed
from market_index_feeds.nats import open_nats_store
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import BucketState, Message
from market_index_feeds.nats.connection import BucketConnection, BucketServers, Delivery
from market_index_feeds.nats.errors import Lost, Unreachable
from market_index_feeds.nats.watch import Watch, WatchState
from tests.market_index_feeds.made_up import book
from tests.market_index_feeds.nats.conftest import SHORT, feed_with_short_timeouts
from tests.waiting import DEADLINE_SECONDS, eventually


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every watch ends after its first deliveries, before it is in sync."""
    deliver = Watch.next

    async def deliver_and_end(self: Watch) -> list[Message]:
        messages = await deliver(self)
        self._end(Lost("it was interrupted"))
        return messages

    monkeypatch.setattr(Watch, "next", deliver_and_end)


@pytest.mark.usefixtures("ending")
class TestEndedBeforeItIsInSync:
    def test_no_feed_publishes_the_deliveries(self, store: Store, bucket: str, live: LiveIndex):
        store.publish(book(1, 1), book(2, 2))
        with pytest.raises(FeedError, match="it was interrupted"):
            feed_with_short_timeouts(bucket).start(live)
        assert len(live.current) == 0

    def test_no_store_takes_the_deliveries_for_the_content(self, store: Store, bucket: str):
        store.publish(book(1, 1), book(2, 2))
        with (
            open_nats_store(bucket, wait=0.3, opening=SHORT) as other,
            pytest.raises(StoreError, match="it was interrupted"),
        ):
            other.replace([book(1, 1)])
        assert store.revision == 3


def test_a_heartbeat_is_not_answered_and_flow_control_is(store: Store, bucket: str, monkeypatch: pytest.MonkeyPatch):
    answered: list[str] = []

    async def reply(_: BucketConnection, subject: str) -> None:
        answered.append(subject)

    async def work() -> None:
        servers = BucketServers(Address.parse(bucket))
        connection = await servers.connect()
        watch = await Watch.open(connection)
        for delivery in (
            Delivery(connection._client, headers={"Nats-Last-Consumer": "0"}),
            Delivery(connection._client, reply="$JS.FC.1"),
            Delivery(connection._client, headers={"Nats-Consumer-Stalled": "$JS.FC.2"}),
        ):
            await watch._deliver(delivery)
        await watch.next()
        await watch.close()
        await servers.disconnect()

    monkeypatch.setattr(BucketConnection, "reply", reply)
    asyncio.run(work())
    assert answered == ["$JS.FC.1", "$JS.FC.2"]


def test_an_ended_watch_stays_ended(store: Store, bucket: str):
    store.publish(book(1, 1))

    async def work() -> None:
        servers = BucketServers(Address.parse(bucket))
        watch = await Watch.open(await servers.connect())
        states = [watch.state]
        while states[-1] is not WatchState.IN_SYNC:
            await watch.next()
            states.append(watch.state)
        assert set(states) == {WatchState.CATCHING_UP, WatchState.IN_SYNC}
        watch._end(Lost("the first reason"))
        watch._end(Lost("another reason"))
        assert not await watch._is_equal()
        assert watch.state is WatchState.ENDED
        with pytest.raises(Lost, match="the first reason"):
            await watch.next()
        await watch.close()
        await servers.disconnect()

    asyncio.run(work())


@pytest.mark.parametrize("is_delivering", [True, False])
def test_an_unanswered_comparison_is_repeated_if_messages_were_delivered(
    store: Store, bucket: str, monkeypatch: pytest.MonkeyPatch, is_delivering: bool
):
    """On a slow link, deliveries delay answers."""
    store.publish(book(1, 1))
    state = BucketConnection.state
    asked = 0

    async def work() -> None:
        servers = BucketServers(Address.parse(bucket))
        watch = await Watch.open(await servers.connect())

        async def unanswered_once(connection: BucketConnection) -> BucketState:
            nonlocal asked
            asked += 1
            if asked == 1:
                watch._delivered_at = monotonic() if is_delivering else 0.0
                raise Unreachable("no answer within 1 seconds")
            return await state(connection)

        monkeypatch.setattr(BucketConnection, "state", unanswered_once)
        try:
            while watch.state is not WatchState.IN_SYNC:
                await watch.next()
        finally:
            await watch.close()
            await servers.disconnect()

    if is_delivering:
        asyncio.run(work())
        assert asked >= 2
    else:
        with pytest.raises(Unreachable, match="no answer within 1 seconds"):
            asyncio.run(work())


class Gaps:
    """A watch whose deliveries and comparisons are those of a test. Each message is of the one key."""

    def __init__(self, watch: Watch, connection: BucketConnection) -> None:
        self.watch, self.connection = watch, connection
        self.delivered = 0
        self.last = asyncio.Queue[int]()

    async def state(self) -> BucketState:
        return BucketState(self.watch.stored.created, await self.last.get(), 1, 0)

    async def deliver(self, sequence: int) -> bool:
        """Deliver a message, and return whether the watch is complete then."""
        self.delivered += 1
        reply = f"$JS.ACK.stream.consumer.1.{sequence}.{self.delivered}.0.0"
        subject = f"{self.connection.prefix}key"
        await self.watch._deliver(Delivery(self.connection._client, subject, reply, b"", {}))
        assert len(await self.watch.next()) == 1
        return self.watch.is_complete


def test_a_message_that_was_overwritten_before_it_was_delivered_leaves_a_gap(
    store: Store, bucket: str, monkeypatch: pytest.MonkeyPatch
):
    """Until what overwrote it is delivered: it is stored already when a comparison starts after the gap."""

    async def work() -> None:
        servers = BucketServers(Address.parse(bucket))
        connection = await servers.connect()
        watch = await Watch.open(connection)
        watch._comparing.cancel()
        gaps = Gaps(watch, connection)
        monkeypatch.setattr(connection, "state", gaps.state)
        complete = [watch.is_complete, await gaps.deliver(1), await gaps.deliver(2)]
        assert complete == [True] * 3
        assert not await gaps.deliver(4)
        comparing = asyncio.create_task(watch._is_equal())
        gaps.last.put_nowait(6)
        assert not await gaps.deliver(5)
        assert not await gaps.deliver(6)
        assert (await comparing, watch.is_complete) == (True, True)
        assert not await gaps.deliver(8)
        comparing = asyncio.create_task(watch._is_equal())
        await asyncio.sleep(0)
        assert not await gaps.deliver(10), "another gap, before the comparison has an answer"
        gaps.last.put_nowait(10)
        assert (await comparing, watch.is_complete) == (True, False)
        gaps.last.put_nowait(10)
        assert (await watch._is_equal(), watch.is_complete) == (True, True)
        assert await gaps.deliver(11)
        await watch.close()
        await servers.disconnect()

    asyncio.run(work())


def test_a_gap_is_closed_without_waiting_for_the_next_check(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, store: Store, live: LiveIndex
):
    monkeypatch.setattr(Watch, "open", partial(Watch.open, check_seconds=2 * DEADLINE_SECONDS))
    watches: list[Watch] = request.getfixturevalue("watches")
    store.publish(book(1, 1))
    with open_feed(store.target) as feed:
        feed.start(live)
        watches[0]._sequence -= 1  # as if the next message was overwritten
        store.update([book(1, 5)], as_of="slot 5")
        eventually(lambda: live.current.as_of == "slot 5")
    assert watches[0]._gaps == 1


def test_deliveries_of_stored_messages_are_no_gap(watches: list[Watch], store: Store):
    for spot in (1, 2):
        store.update([book(number, spot) for number in range(1, 1000, spot)], as_of=f"slot {spot}")
    assert open_feed(store.target).read().as_of == "slot 2"
    assert watches[0].is_complete
    assert watches[0]._gaps > 400
