"""The live index: atomic updates, and threads, tasks and iterators that wait for the next change."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from math import inf, nan
from threading import Barrier
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    ADA,
    AssetId,
    Freshness,
    InvalidFreshness,
    InvalidOrderBook,
    LiveIndex,
    MarketIndex,
    OrderBook,
    Pair,
)
from tests.waiting import DEADLINE_SECONDS, frequent_switches

PUBLISHED_AT = datetime(2026, 11, 22, tzinfo=UTC)


def pair(number: int) -> Pair:
    return Pair(AssetId(number.to_bytes(28, "big"), b""), ADA)


def book(number: int, spot: str = "1") -> OrderBook:
    return OrderBook(pair(number), spot=spot)


BOOK, FOLLOWING = book(1), book(1, "2")
FRESH = Freshness("block 7", PUBLISHED_AT)
CHANGES: dict[str, Callable[[LiveIndex], object]] = {
    "publish": lambda live: live.publish(FOLLOWING),
    "retract": lambda live: live.retract(BOOK.pair),
    "freshness": lambda live: live.update((), freshness=FRESH),
    "show": lambda live: live.show(MarketIndex()),
}


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex([BOOK])


some_pairs = st.sets(st.integers(1, 3))
some_books = st.dictionaries(st.integers(1, 3), st.sampled_from(["1", "2"]))
some_freshness = st.sampled_from([None, None, Freshness(), FRESH])


class TestUpdate:
    """`publish`, `retract`, `update` and `show` replace the whole index."""

    @given(st.lists(st.lists(st.tuples(some_books, some_pairs, some_freshness), max_size=3), max_size=6))
    def test_index_and_changes_equal_a_dict_after_any_updates(self, steps):
        live, model, freshness = LiveIndex([BOOK]), {BOOK.pair: BOOK}, Freshness()
        followed: dict[Pair, OrderBook] = {}

        async def follow() -> None:
            nonlocal freshness
            changes, changes_async, seen = live.changes(), live.changes_async(), None
            for step in [[], *steps]:
                for published, retracted, fresh in step:
                    before, content = live.current, dict(live.current)
                    books = [book(number, spot) for number, spot in published.items()]
                    for number in retracted:
                        model.pop(pair(number), None)
                    model.update({one.pair: one for one in books})
                    freshness = freshness if fresh is None else fresh
                    assert live.update(iter(books), map(pair, retracted), fresh) is live.current
                    assert (dict(live.current), live.current.freshness) == (model, freshness)
                    assert dict(before) == content
                if live.current is seen:
                    continue
                seen = live.current
                index, books_of_step, removed = change = next(changes)
                assert await anext(changes_async) == change
                assert index is live.current
                followed.update({one.pair: one for one in books_of_step})
                for one in removed:
                    del followed[one]
                assert followed == index

        asyncio.run(follow())

    def test_it_begins_with_books_with_a_mapping_or_with_an_index_as_it_is(self):
        index = MarketIndex([BOOK], "block 7")
        assert LiveIndex(index).current is index
        assert LiveIndex({BOOK.pair: BOOK}).current == LiveIndex([BOOK]).current == index

    def test_publish_and_retract_are_updates(self, live: LiveIndex):
        assert live.publish(book(2), FOLLOWING) is live.current == {pair(1): FOLLOWING, pair(2): book(2)}
        assert live.retract(pair(1), pair(3)) is live.current == {pair(2): book(2)}
        assert repr(live) == "<LiveIndex: 1 pairs>"

    @pytest.mark.parametrize(
        ("update", "error", "message"),
        [
            (lambda live: live.publish(book(2), None), InvalidOrderBook, "a value of an index must be an OrderBook"),
            (lambda live: live.publish([book(2)]), InvalidOrderBook, r"a value of an index .*; pass \*books$"),
            (lambda live: live.update(book(2)), InvalidOrderBook, "publish must be a list of OrderBook, got OrderBo"),
            (lambda live: type(live)(book(2)), InvalidOrderBook, "books must be a list .* got .*; put it in a list$"),
            (lambda live: live.update([book(2)], [None]), InvalidOrderBook, "pair must be a Pair, got NoneType: None"),
            (lambda live: live.update([book(2)], [[1]]), InvalidOrderBook, r"pair must be a Pair, got list: \[1\]"),
            (lambda live: live.update([], pair(1)), InvalidOrderBook, "retract must be a list of Pair, got Pair: "),
            (lambda live: live.show({}), InvalidOrderBook, r"index must be a MarketIndex, got dict: \{\}$"),
            (lambda live: live.update([book(2)], freshness=0), InvalidFreshness, "freshness must be a Freshness"),
        ],
    )
    def test_a_rejected_update_changes_nothing(self, live: LiveIndex, update, error, message: str):
        before = live.current
        with pytest.raises(error, match=f"^{message}"):
            update(live)
        assert live.current is before
        assert len(live.publish(book(3))) == 2

    def test_no_publish_of_many_threads_is_lost(self):
        live = LiveIndex()
        with frequent_switches(), ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: live.publish(book(number)), range(1, 2_001)))
        assert len(live.current) == 2_000

    def test_an_iterable_of_books_may_itself_publish(self, live: LiveIndex):
        def books() -> Iterator[OrderBook]:
            live.publish(book(2))
            yield book(3)

        assert len(live.update(books())) == 3

    def test_an_index_is_shown_with_its_freshness_instead_of_any_or_of_the_current_one(self, live: LiveIndex):
        mine, following = live.current, MarketIndex([book(2)], "block 7", PUBLISHED_AT)
        assert live.show(following, instead_of=mine)
        assert live.current is following
        assert not live.show(MarketIndex(), instead_of=mine)
        # An equal index may be of another writer.
        assert not live.show(MarketIndex(), instead_of=MarketIndex(following.values()))
        assert live.current is following
        assert live.publish(book(4)).as_of == "block 7"
        assert live.show(mine)
        assert live.current is mine


class TestWait:
    """`wait` in a thread, `changed` in a task."""

    def test_an_index_that_is_not_the_current_one_is_no_reason_to_wait(self, live: LiveIndex):
        other = MarketIndex(live.current.values())
        assert live.wait() is live.wait(None, 0) is live.wait(other) is live.current
        assert asyncio.run(live.changed()) is asyncio.run(live.changed(other)) is live.current

    @pytest.mark.parametrize("timeout", [1e-9, 0, -1, -inf])
    def test_at_the_timeout_the_known_index_is_returned(self, live: LiveIndex, timeout: float):
        before = live.current
        assert live.wait(before, timeout) is before

    def test_a_timeout_must_be_a_number(self, live: LiveIndex):
        with pytest.raises(ValueError, match="timeout must be None or a number of seconds, got nan"):
            live.wait(live.current, nan)

    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    @pytest.mark.parametrize("timeout", [None, DEADLINE_SECONDS, inf])
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

        def follow() -> MarketIndex:
            steps = live.changes(timeout)
            next(steps)
            start.wait(DEADLINE_SECONDS)
            return next(steps)[0]

        with ThreadPoolExecutor(4) as threads:
            waiting = [threads.submit(wait), threads.submit(follow)]
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

    def test_a_loop_that_is_closed_is_left_out_and_leaves_nothing_behind(self, live: LiveIndex):
        async def give_up() -> ref[asyncio.AbstractEventLoop]:
            waiting = asyncio.create_task(live.changed(live.current))
            await asyncio.sleep(0)
            waiting.cancel()
            return ref(asyncio.get_running_loop())

        ended = asyncio.run(give_up())
        gc.collect()  # the traceback of the cancellation is a cycle
        assert ended() is None
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(live.changed(live.current))
        loop.run_until_complete(asyncio.sleep(0, loop))
        loop.close()
        live.publish(FOLLOWING)
        assert live.current[pair(1)] is FOLLOWING
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # it never ends

    def test_changes_end_at_a_timeout_without_a_change(self, live: LiveIndex):
        steps = []
        for _, *step in live.changes(timeout=0):
            steps.append(step)
            live.publish(FOLLOWING)
        assert steps[1:] == [[(FOLLOWING,), ()]]


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
