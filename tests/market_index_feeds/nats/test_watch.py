"""The watch: nothing that it delivered is taken for the whole bucket before it is in sync."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from market_index import LiveIndex
from market_index_feeds import FeedError, Store, StoreError
from market_index_feeds.nats import open_nats_store
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import Message, State
from market_index_feeds.nats.cluster import Cluster
from market_index_feeds.nats.connection import Connection, Delivery
from market_index_feeds.nats.errors import Lost, Unreachable
from market_index_feeds.nats.watch import Watch, WatchState
from tests.market_index_feeds.made_up import book
from tests.market_index_feeds.nats.conftest import SHORT, impatient_feed


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every watch ends when it has delivered something, before it is in sync."""
    deliver = Watch.next

    async def deliver_and_end(self: Watch) -> list[Message]:
        messages = await deliver(self)
        self._end(Lost("it was interrupted"))
        return messages

    monkeypatch.setattr(Watch, "next", deliver_and_end)


@pytest.mark.usefixtures("ending")
class TestEndedBeforeItIsInSync:
    def test_no_feed_publishes_what_it_delivered(self, store: Store, bucket: str, live: LiveIndex):
        store.publish(book(1, 1), book(2, 2))
        with pytest.raises(FeedError, match="it was interrupted"):
            impatient_feed(bucket).start(live)
        assert len(live.current) == 0

    def test_no_store_takes_that_for_what_is_stored(self, store: Store, bucket: str):
        store.publish(book(1, 1), book(2, 2))
        with (
            open_nats_store(bucket, wait=0.3, opening=SHORT) as other,
            pytest.raises(StoreError, match="it was interrupted"),
        ):
            other.replace([book(1, 1)])
        assert store.revision == 2


def test_a_heartbeat_is_not_answered_and_flow_control_is(store: Store, bucket: str, monkeypatch: pytest.MonkeyPatch):
    answered: list[str] = []

    async def reply(_: Connection, subject: str) -> None:
        answered.append(subject)

    async def work() -> None:
        cluster = Cluster(Address.parse(bucket))
        connection = await cluster.connect()
        watch = await Watch.open(connection)
        for delivery in (
            Delivery(connection._client, headers={"Nats-Last-Consumer": "0"}),
            Delivery(connection._client, reply="$JS.FC.1"),
            Delivery(connection._client, headers={"Nats-Consumer-Stalled": "$JS.FC.2"}),
        ):
            await watch._deliver(delivery)
        await watch.next()
        await watch.close()
        await cluster.disconnect()

    monkeypatch.setattr(Connection, "reply", reply)
    asyncio.run(work())
    assert answered == ["$JS.FC.1", "$JS.FC.2"]


def test_it_stays_ended(store: Store, bucket: str):
    store.publish(book(1, 1))

    async def work() -> None:
        cluster = Cluster(Address.parse(bucket))
        watch = await Watch.open(await cluster.connect())
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
        await cluster.disconnect()

    asyncio.run(work())


@pytest.mark.parametrize("is_delivering", [True, False])
def test_a_comparison_without_an_answer_is_repeated_if_something_was_delivered_meanwhile(
    store: Store, bucket: str, monkeypatch: pytest.MonkeyPatch, is_delivering: bool
):
    """On a slow link, answers wait behind deliveries."""
    store.publish(book(1, 1))
    state = Connection.state
    asked = 0

    async def work() -> None:
        cluster = Cluster(Address.parse(bucket))
        watch = await Watch.open(await cluster.connect())

        async def unanswered_once(connection: Connection) -> State:
            nonlocal asked
            asked += 1
            if asked == 1:
                watch._delivered_at = monotonic() if is_delivering else 0.0
                raise Unreachable("no answer within 1 seconds")
            return await state(connection)

        monkeypatch.setattr(Connection, "state", unanswered_once)
        try:
            while watch.state is not WatchState.IN_SYNC:
                await watch.next()
        finally:
            await watch.close()
            await cluster.disconnect()

    if is_delivering:
        asyncio.run(work())
        assert asked >= 2
    else:
        with pytest.raises(Unreachable, match="no answer within 1 seconds"):
            asyncio.run(work())
