"""How long work on a bucket is retried: what gets further has the whole time again."""

from __future__ import annotations

import asyncio

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, Store
from market_index_feeds.nats import open_nats_source, open_nats_store, watch
from market_index_feeds.nats import retry as retrying
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import Message
from market_index_feeds.nats.errors import Lost
from market_index_feeds.nats.publisher import Change, Publisher
from market_index_feeds.nats.records import key_of, record_of
from market_index_feeds.nats.retry import RetryTimeouts, retry
from market_index_feeds.nats.watch import Watch
from market_index_feeds.nats.writes import WriteState
from tests.market_index_feeds.made_up import book, pair, spots

ONE_ATTEMPT = RetryTimeouts(connect=5, answer=5)
"""Shorter than an attempt takes by the clock of `Clock`."""

ATTEMPT_SECONDS = 100


class Clock:
    """The monotonic clock of `retry`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retrying, "monotonic", clock)
    return clock


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[int]:
    """Each of the first watches takes long and ends before it is in sync: the first after a message, and so on."""
    ends_after = [1, 2, 3]
    deliver = Watch.next

    async def deliver_and_end(self: Watch) -> list[Message]:
        messages = await deliver(self)
        if ends_after and self._delivered >= ends_after[0]:
            del ends_after[0]
            clock.now += ATTEMPT_SECONDS
            self._end(Lost("it was interrupted"))
        return messages

    monkeypatch.setattr(Watch, "next", deliver_and_end)
    monkeypatch.setattr(watch, "_MAX_MESSAGES", 1)
    return ends_after


@pytest.mark.parametrize(("reached", "attempts"), [((1, 2, 3), 4), ((1, 2, 2), 3), ((0,), 1), ((2, 1), 2)])
def test_work_is_retried_as_long_as_it_gets_further(clock: Clock, reached: tuple[int, ...], attempts: int):
    made = 0

    async def work() -> str:
        nonlocal made
        made += 1
        clock.now += ATTEMPT_SECONDS
        if made <= len(reached):
            raise Lost("it was interrupted")
        return "done"

    working = retry(work, ONE_ATTEMPT, lambda: reached[made - 1])
    if attempts > len(reached):
        assert asyncio.run(working) == "done"
    else:
        with pytest.raises(Lost):
            asyncio.run(working)
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


def test_the_time_of_a_write_starts_with_the_write(store: Store, bucket: str):
    store.publish(book(1, 1))
    key = key_of(pair(1))

    async def work() -> None:
        publisher = Publisher(Address.parse(bucket), bucket, wait=5)
        change = Change({key: record_of(book(1, 2))})
        # As if reading what is stored took long.
        change.acknowledged_at -= ATTEMPT_SECONDS
        # It does not know the last sequence, so the server stores its second attempt.
        await publisher.write(change)
        assert [write.state for write in change.writes] == [WriteState.ACKNOWLEDGED]
        await publisher.cluster.disconnect()

    asyncio.run(work())
