"""The live index: atomic updates, and threads, tasks and iterators that wait for the next change."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from math import inf
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, Freshness, InvalidOrderBook, LiveIndex, MarketIndex, OrderBook, Pair
from tests.waiting import DEADLINE_SECONDS

PUBLISHED_AT = datetime(2026, 11, 22, tzinfo=UTC)


def pair(number: int) -> Pair:
    return Pair(AssetId(number.to_bytes(28, "big"), b""), ADA)


BOOK, FOLLOWING = (OrderBook(pair(1), spot=spot) for spot in ("1", "2"))
CHANGES: dict[str, Callable[[LiveIndex], object]] = {
    "publish": lambda live: live.publish(FOLLOWING),
    "retract": lambda live: live.retract(BOOK.pair),
    "freshness": lambda live: live.update((), freshness=Freshness("block 7", PUBLISHED_AT)),
    "show": lambda live: live.show(MarketIndex()),
}


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex([BOOK])


class TestUpdate:
    """`publish`, `retract`, `update` and `show` replace the whole index."""

    def test_publish_and_retract_replace_the_index(self, live: LiveIndex):
        before = live.current
        published = live.publish(OrderBook(pair(2), spot="2"), FOLLOWING)
        assert published is live.current
        assert [info.last_spot for info in published.pair_list()] == [2, 2]
        assert list(before.values()) == [BOOK]
        assert list(live.retract(pair(1), pair(3))) == [pair(2)]
        assert repr(live) == "<LiveIndex: 1 pairs>"

    def test_update_retracts_and_publishes_atomically(self, live: LiveIndex):
        live.publish(OrderBook(pair(2), spot="5"))
        live.update([OrderBook(pair(2), spot="6")], [pair(1), pair(2)])
        assert dict(live.current) == {pair(2): OrderBook(pair(2), spot="6")}

    def test_a_rejected_update_changes_nothing(self, live: LiveIndex):
        before = live.current
        for update in (
            lambda: live.publish(OrderBook(pair(2)), None),  # type: ignore[arg-type]  # a caller without types
            lambda: live.update([OrderBook(pair(2))], [None]),  # type: ignore[list-item]  # a caller without types
            lambda: live.show({}),  # type: ignore[arg-type]  # a caller without types
        ):
            with pytest.raises((InvalidOrderBook, TypeError)):
                update()
        assert live.current is before
        assert len(live.publish(OrderBook(pair(3)))) == 2

    def test_no_publish_of_many_threads_is_lost(self):
        live = LiveIndex()
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(lambda number: live.publish(OrderBook(pair(number))), range(1, 2_001)))
        finally:
            sys.setswitchinterval(before)
        assert len(live.current) == 2_000

    def test_an_iterable_of_books_may_itself_publish(self, live: LiveIndex):
        def books() -> Iterator[OrderBook]:
            live.publish(OrderBook(pair(2)))
            yield OrderBook(pair(3))

        assert len(live.update(books())) == 3

    def test_a_shown_index_becomes_current_with_its_freshness(self, live: LiveIndex):
        index = MarketIndex([OrderBook(pair(2))], "block 7", PUBLISHED_AT)
        assert live.show(index)
        assert live.current is index
        assert live.publish(OrderBook(pair(4))).as_of == "block 7"

    def test_an_index_is_replaced_only_if_it_is_the_current_one(self, live: LiveIndex):
        mine, following = live.current, MarketIndex([OrderBook(pair(2))])
        assert live.show(following, instead_of=mine)
        assert not live.show(MarketIndex(), instead_of=mine)
        # An equal index may be of another writer.
        assert not live.show(MarketIndex(), instead_of=MarketIndex(following.values()))
        assert live.current is following
        assert live.show(mine)


class TestWait:
    """`wait` in a thread, `changed` in a task."""

    def test_an_index_that_is_not_the_current_one_is_no_reason_to_wait(self, live: LiveIndex):
        other = MarketIndex(live.current.values())
        assert live.wait() is live.wait(None, 0) is live.wait(other) is live.current
        assert asyncio.run(live.changed()) is asyncio.run(live.changed(other)) is live.current

    @pytest.mark.parametrize("timeout", [0, -1, 0.01, -inf])
    def test_at_the_timeout_the_known_index_is_returned(self, live: LiveIndex, timeout: float):
        before = live.current
        assert live.wait(before, timeout) is before

    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    @pytest.mark.parametrize("timeout", [None, DEADLINE_SECONDS])
    def test_any_change_wakes_threads_and_the_tasks_of_each_event_loop(
        self, live: LiveIndex, timeout: float | None, change: Callable[[LiveIndex], object]
    ):
        before, start = live.current, Barrier(5)

        async def wait_in_tasks() -> set[MarketIndex]:
            tasks = [asyncio.create_task(live.changed(before)) for _ in range(10)]
            await asyncio.sleep(0)
            start.wait(DEADLINE_SECONDS)
            return set(await asyncio.gather(*tasks))

        def wait() -> MarketIndex:
            start.wait(DEADLINE_SECONDS)
            return live.wait(before, timeout)

        with ThreadPoolExecutor(4) as threads:
            waiting = [threads.submit(wait) for _ in range(2)]
            loops = [threads.submit(asyncio.run, wait_in_tasks()) for _ in range(2)]
            start.wait(DEADLINE_SECONDS)
            live.show(before)  # it is no change
            change(live)
            assert {one.result(DEADLINE_SECONDS) for one in waiting} == {live.current}
            assert [loop.result(DEADLINE_SECONDS) for loop in loops] == [{live.current}] * 2
        assert live.current is not before

    def test_no_wake_up_is_lost(self, live: LiveIndex):
        last, start = 1_000, Barrier(7)

        def follow() -> None:
            start.wait(DEADLINE_SECONDS)
            seen = live.current
            while seen.as_of != str(last):
                before, seen = seen, live.wait(seen, DEADLINE_SECONDS)
                assert seen is not before, "no change arrived"

        async def follow_in_tasks() -> None:
            async def follow_in_task() -> None:
                seen = live.current
                while seen.as_of != str(last):
                    seen = await live.changed(seen)

            start.wait(DEADLINE_SECONDS)
            async with asyncio.timeout(DEADLINE_SECONDS):
                await asyncio.gather(*[follow_in_task() for _ in range(20)])

        with ThreadPoolExecutor(6) as threads:
            followers = [threads.submit(follow) for _ in range(3)]
            followers += [threads.submit(asyncio.run, follow_in_tasks()) for _ in range(3)]
            start.wait(DEADLINE_SECONDS)
            for number in range(1, last + 1):
                live.update((), freshness=Freshness(str(number)))
            for follower in followers:
                follower.result(DEADLINE_SECONDS)

    def test_a_thousand_waiting_tasks_are_woken_by_one_call_into_their_loop(
        self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        async def main() -> None:
            loop = asyncio.get_running_loop()
            tasks = [asyncio.create_task(live.changed(live.current)) for _ in range(1_000)]
            await asyncio.sleep(0)
            call, calls = loop.call_soon_threadsafe, []
            monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: calls.append(call))
            live.publish(FOLLOWING)
            assert len(calls) == 1
            call(*calls[0])
            assert set(await asyncio.gather(*tasks)) == {live.current}

        asyncio.run(main())

    def test_tasks_that_are_cancelled_and_loops_that_are_closed_leave_nothing_behind(self, live: LiveIndex):
        async def give_up() -> None:
            waiting = asyncio.create_task(live.changed(live.current))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await waiting
            assert not any(event._waiters for event in live._events.values())

        asyncio.run(give_up())
        live.publish(FOLLOWING)
        assert not live._events
        assert live.current[pair(1)] is FOLLOWING


published = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["1", "2", None])), max_size=10)


class TestChanges:
    """`changes` and `changes_async`: the differences to what the caller saw last."""

    @given(steps=st.lists(published, max_size=6))
    def test_a_dict_that_follows_the_steps_equals_the_index(self, steps: list[list[tuple[int, str | None]]]):
        live, followed = LiveIndex([BOOK]), dict[Pair, OrderBook]()

        async def follow() -> None:
            asynchronous: AsyncIterator[object] = live.changes_async()
            changes, seen = live.changes(), None
            for step in [[], *steps]:
                for number, spot in step:
                    if spot is None:
                        live.retract(pair(number))
                    else:
                        live.publish(OrderBook(pair(number), spot=spot))
                if live.current is seen:
                    continue
                seen = live.current
                index, books, removed = change = next(changes)
                assert await anext(asynchronous) == change
                assert index is live.current
                followed.update({book.pair: book for book in books})
                for one in removed:
                    del followed[one]
                assert followed == index

        asyncio.run(follow())

    def test_a_change_of_the_freshness_is_a_step_without_books(self, live: LiveIndex):
        changes = live.changes()
        assert next(changes) == (live.current, (BOOK,), ())
        fresh = live.update((), freshness=Freshness("block 7"))
        assert next(changes) == (fresh, (), ())


PRELOADED = """
import asyncio, os, threading
from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair

book, following = (OrderBook(Pair(AssetId(bytes(28), b""), ADA), spot=spot) for spot in ("1", "2"))
live = LiveIndex([book])
before = live.current
# A thread of the parent waits during the fork.
threading.Thread(target=live.wait, args=[before], daemon=True).start()
child = os.fork()
if child == 0:
    async def wait():
        task = asyncio.create_task(live.changed(before))
        await asyncio.sleep(0)
        threading.Thread(target=live.publish, args=[following]).start()
        return await task
    waiting = threading.Thread(target=live.wait, args=[before])
    waiting.start()
    index = asyncio.run(wait())
    waiting.join()
    os._exit(0 if index is live.current and index[book.pair] is following else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert live.current is before
live.publish(following)
"""


def test_a_live_index_that_nobody_updates_during_a_fork_works_in_the_child():
    # As under `gunicorn --preload`.
    subprocess.run([sys.executable, "-W", "ignore", "-c", PRELOADED], check=True, timeout=DEADLINE_SECONDS)


def test_a_program_that_only_publishes_does_not_load_asyncio():
    program = "import sys, market_index; market_index.LiveIndex().publish(); assert 'asyncio' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_SECONDS)
