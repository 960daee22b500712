"""Waiting for a change of a live index, in threads, event loops, signal handlers and forked processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from math import inf, nan
from threading import Barrier, Thread

import pytest

from market_index import ADA, AssetId, Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index.waiters import Waiters
from tests.waiting import DEADLINE_SECONDS, eventually

PUBLISHED_AT = datetime(2026, 11, 22, tzinfo=UTC)
BOOK, FOLLOWING = (OrderBook(Pair(AssetId(bytes(28), b""), ADA), spot=spot) for spot in ("1", "2"))
CHANGES: dict[str, Callable[[LiveIndex], object]] = {
    "publish": lambda live: live.publish(FOLLOWING),
    "retract": lambda live: live.retract(BOOK.pair),
    "freshness": lambda live: live.update((), freshness=Freshness("block 7", PUBLISHED_AT)),
    "show": lambda live: live.show(MarketIndex()),
}


def waits(live: LiveIndex) -> bool:
    """Whether a thread or a task waits."""
    return bool(live._waiters._gates or live._waiters._tasks)


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex([BOOK])


class TestThreads:
    """`LiveIndex.wait`."""

    def test_an_index_that_is_not_the_current_one_is_no_reason_to_wait(self, live: LiveIndex):
        assert live.wait() is live.wait(None, 0) is live.wait(MarketIndex(live.current.values())) is live.current

    @pytest.mark.parametrize("timeout", [0, -1, 0.01, -inf, nan])
    def test_at_the_timeout_the_known_index_is_returned(self, live: LiveIndex, timeout: float):
        before = live.current
        assert live.wait(before, timeout) is before

    def test_a_wait_lasts_as_long_as_its_timeout(self, live: LiveIndex):
        start = time.monotonic()
        live.wait(live.current, 0.05)
        assert time.monotonic() - start >= 0.05

    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    @pytest.mark.parametrize("timeout", [None, inf, 10 * DEADLINE_SECONDS, 1e300])
    def test_any_change_ends_a_wait(
        self, live: LiveIndex, timeout: float | None, change: Callable[[LiveIndex], object]
    ):
        before = live.current
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(live.wait, before, timeout)
            eventually(lambda: waits(live))
            change(live)
            assert waiting.result(DEADLINE_SECONDS) is live.current is not before

    def test_an_index_that_is_shown_again_is_no_change(self, live: LiveIndex):
        before = live.current
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(live.wait, before)
            eventually(lambda: waits(live))
            live.show(before)
            eventually(lambda: waits(live))
            assert not waiting.done()
            live.publish(FOLLOWING)
            assert waiting.result(DEADLINE_SECONDS) is live.current

    def test_no_wake_up_of_many_threads_is_lost(self, live: LiveIndex):
        last, start = 2_000, Barrier(9)

        def follow() -> None:
            seen = live.wait()
            start.wait(DEADLINE_SECONDS)
            while seen.as_of != str(last):
                before, seen = seen, live.wait(seen, DEADLINE_SECONDS)
                assert seen is not before, "no change arrived"

        with ThreadPoolExecutor(9) as threads:
            followers = [threads.submit(follow) for _ in range(8)]
            start.wait(DEADLINE_SECONDS)
            for number in range(1, last + 1):
                live.update((), freshness=Freshness(str(number)))
            for follower in followers:
                follower.result()
        assert not waits(live)

    def test_of_many_waiting_threads_all_are_woken_by_one_change(self, live: LiveIndex):
        before, start = live.current, Barrier(101)
        found: list[MarketIndex] = []

        def wait() -> None:
            start.wait(DEADLINE_SECONDS)
            found.append(live.wait(before))

        threads = [Thread(target=wait) for _ in range(100)]
        for thread in threads:
            thread.start()
        start.wait(DEADLINE_SECONDS)
        eventually(lambda: waits(live))
        live.publish(FOLLOWING)
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        assert found == [live.current] * 100


class TestTasks:
    """`LiveIndex.changed`."""

    def test_an_index_that_is_not_the_current_one_is_no_reason_to_wait(self, live: LiveIndex):
        assert asyncio.run(live.changed()) is asyncio.run(live.changed(MarketIndex())) is live.current

    def test_without_an_event_loop_there_is_an_error(self, live: LiveIndex):
        waiting = live.changed(live.current)
        with pytest.raises(RuntimeError, match="no running event loop"):
            waiting.send(None)

    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    def test_any_change_in_any_thread_ends_a_wait(self, live: LiveIndex, change: Callable[[LiveIndex], object]):
        async def wait(changing: Callable[[], object]) -> None:
            before = live.current
            waiting = [asyncio.create_task(live.changed(before)) for _ in range(3)]
            await asyncio.sleep(0)
            assert waits(live)
            changing()
            assert await asyncio.gather(*waiting) == [live.current] * 3
            assert before is not live.current
            assert not waits(live)

        asyncio.run(wait(lambda: change(live)))
        live.show(MarketIndex([BOOK]))
        asyncio.run(wait(lambda: Thread(target=change, args=[live]).start()))

    def test_an_index_that_is_shown_again_is_no_change(self, live: LiveIndex):
        async def wait() -> None:
            before = live.current
            waiting = asyncio.create_task(live.changed(before))
            await asyncio.sleep(0)
            live.show(before)
            while not waits(live):
                await asyncio.sleep(0)
            assert not waiting.done()
            live.publish(FOLLOWING)
            assert await waiting is live.current

        asyncio.run(wait())

    def test_no_wake_up_in_several_event_tasks_is_lost(self, live: LiveIndex):
        last, start = 1_000, Barrier(4)

        async def follow() -> None:
            seen = None
            while seen is None or seen.as_of != str(last):
                async with asyncio.timeout(DEADLINE_SECONDS):
                    seen = await live.changed(seen)

        async def follow_in_tasks() -> None:
            start.wait(DEADLINE_SECONDS)
            await asyncio.gather(*(follow() for _ in range(20)))

        with ThreadPoolExecutor(3) as threads:
            loops = [threads.submit(asyncio.run, follow_in_tasks()) for _ in range(3)]
            start.wait(DEADLINE_SECONDS)
            for number in range(1, last + 1):
                live.update((), freshness=Freshness(str(number)))
            for loop in loops:
                loop.result()
        assert not waits(live)

    def test_cancelled_waits_leave_nothing_behind(self, live: LiveIndex):
        async def wait() -> None:
            before = live.current
            waiting = [asyncio.create_task(live.changed(before)) for _ in range(100)]
            await asyncio.sleep(0)
            for task in waiting[1:]:
                task.cancel()
            await asyncio.wait(waiting[1:])
            assert all(task.cancelled() for task in waiting[1:])
            live.publish(FOLLOWING)
            assert await waiting[0] is live.current
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await live.changed(live.current)
            assert not waits(live)

        asyncio.run(wait())

    def test_a_task_that_is_cancelled_after_its_change_is_cancelled(self, live: LiveIndex):
        async def wait() -> None:
            waiting = [asyncio.create_task(live.changed(live.current)) for _ in range(2)]
            await asyncio.sleep(0)
            live.publish(FOLLOWING)
            waiting[0].cancel()
            assert await waiting[1] is live.current
            assert waiting[0].cancelled()

        asyncio.run(wait())

    def test_an_event_loop_that_was_closed_while_a_task_waited_is_ignored(self, live: LiveIndex):
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(live.changed(live.current))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        live.publish(FOLLOWING)
        assert not waits(live)
        assert not waiting.done()
        # The task is never resumed: its coroutine ends here, without a warning.
        coroutine = waiting.get_coro()
        assert coroutine is not None
        coroutine.close()
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio's own `gather` does


class Change:
    """A change that is made while a waiter compares for the second time: after it has joined a group."""

    def __init__(self) -> None:
        self.waiters = Waiters()
        self._comparisons = 0

    def __call__(self) -> bool:
        self._comparisons += 1
        if self._comparisons == 2:
            self.waiters.wake()
        return self._comparisons > 2


class TestChangesBetween:
    """A change between the steps of a waiter is not missed, because it joins a group before it compares again."""

    def test_a_change_while_a_thread_compares_ends_its_wait(self):
        change, start = Change(), time.monotonic()
        change.waiters.wait(change, DEADLINE_SECONDS)
        assert time.monotonic() - start < DEADLINE_SECONDS

    def test_a_change_while_a_task_compares_ends_its_wait(self):
        async def wait() -> None:
            change = Change()
            async with asyncio.timeout(DEADLINE_SECONDS):
                await change.waiters.wait_in_task(change)

        asyncio.run(wait())

    def test_a_change_before_the_second_comparison_needs_no_wake_up(self):
        waiters, comparisons = Waiters(), iter([False, True, True] * 2)
        start = time.monotonic()
        waiters.wait(lambda: next(comparisons), DEADLINE_SECONDS)
        assert time.monotonic() - start < DEADLINE_SECONDS
        asyncio.run(waiters.wait_in_task(lambda: next(comparisons)))
        assert not waiters._tasks

    def test_the_group_of_a_later_change_stays_when_the_last_task_of_an_earlier_one_leaves(self):
        async def wait() -> None:
            waiters, changes = Waiters(), 0
            earlier = asyncio.create_task(waiters.wait_in_task(lambda: changes >= 1))
            await asyncio.sleep(0)
            changes = 1
            waiters.wake()
            later = asyncio.create_task(waiters.wait_in_task(lambda: changes >= 2))
            await earlier
            assert waiters._tasks
            changes = 2
            waiters.wake()
            await later
            assert not waiters._tasks

        asyncio.run(wait())


INTERRUPTED = """
import signal, threading
from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair

live = LiveIndex()
book = OrderBook(Pair(AssetId(bytes(28), b""), ADA))
before = live.current
others = [threading.Thread(target=live.wait, args=[before]) for _ in range(8)]
for thread in others:
    thread.start()

def act(*_):
    if HANDLER == "publishes":
        live.publish(book)
    else:
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, act)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    assert live.wait(before) is live.current
    assert HANDLER == "publishes"
except KeyboardInterrupt:
    assert HANDLER == "raises"
    live.publish(book)
for thread in others:
    thread.join()
"""


@pytest.mark.parametrize("handler", ["publishes", "raises"])
def test_a_signal_handler_that_interrupts_a_wait_may_publish_or_raise(handler: str):
    program = f"HANDLER = {handler!r}\n{INTERRUPTED}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize("is_released", [False, True])
def test_a_thread_that_is_interrupted_while_it_passes_a_gate_lets_the_others_pass(*, is_released: bool):
    waiters, comparisons = Waiters(), iter([False, True, True])
    waiters.wait(lambda: next(comparisons))
    gate = next(iter(waiters._gates))
    waiters.wake()
    # An interrupted thread holds the lock, or has released it.
    assert gate._lock.acquire(blocking=False)
    if is_released:
        gate._lock.release()
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(gate.wait, DEADLINE_SECONDS) for _ in range(2)]
        if not is_released:
            with pytest.raises(KeyboardInterrupt):
                interrupted(gate.wait)
        start = time.monotonic()
        for one in waiting:
            one.result()
        assert time.monotonic() - start < DEADLINE_SECONDS


def test_a_thread_that_is_interrupted_at_an_open_gate_raises_only_its_interrupt():
    class Passed:
        """The lock of an open gate, at which a thread is interrupted."""

        def __init__(self) -> None:
            self.release = threading.Lock().release

        def acquire(self, **_: object) -> None:
            raise KeyboardInterrupt

    waiters, comparisons = Waiters(), iter([False, True, True])
    waiters.wait(lambda: next(comparisons))
    gate = next(iter(waiters._gates))
    waiters.wake()
    gate._lock = Passed()  # type: ignore[assignment]  # it has what a gate uses of a lock
    with pytest.raises(KeyboardInterrupt):
        gate.wait(DEADLINE_SECONDS)


def interrupted(wait: Callable[[float], None]) -> None:
    """Call a wait, and raise `KeyboardInterrupt` in it as soon as it waits."""
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT]).start()
    wait(DEADLINE_SECONDS)


STRESSED = """
import asyncio, signal, threading
from market_index import Freshness, LiveIndex

class Interrupt(Exception):
    pass

def interrupt(*_):
    raise Interrupt

live = LiveIndex()
seen = {"thread": None, "task": None}

def follow():
    index = live.current
    while index.as_of != "end":
        seen["thread"] = index = live.wait(index)

async def follow_in_task():
    index = live.current
    while index.as_of != "end":
        seen["task"] = index = await live.changed(index)

followers = [threading.Thread(target=follow), threading.Thread(target=asyncio.run, args=[follow_in_task()])]
for follower in followers:
    follower.start()
signal.signal(signal.SIGALRM, interrupt)
interrupted = 0
number = 0
while interrupted < 400:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
        while True:
            number += 1
            live.update((), freshness=Freshness(str(number)))
            live.wait(live.current, 0.00001)
    except Interrupt:
        interrupted += 1
live.update((), freshness=Freshness("end"))
for follower in followers:
    follower.join(30)
    assert not follower.is_alive()
"""


def test_no_interrupt_of_a_publisher_or_of_a_waiter_loses_a_later_wake_up():
    # Coverage holds a lock for some instructions: a handler that raises there leaves it locked.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    subprocess.run([sys.executable, "-c", STRESSED], check=True, timeout=DEADLINE_SECONDS, env=environment)


FORKED = """
import asyncio, os, threading
from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair

live = LiveIndex()
book = OrderBook(Pair(AssetId(bytes(28), b""), ADA))
before = live.current
waiting = threading.Thread(target=live.wait, args=[before])
waiting.start()

async def wait():
    changed = asyncio.create_task(live.changed(before))
    await asyncio.sleep(0)
    child = os.fork()
    if child == 0:
        # A publish of the child would otherwise wake the event loop of its parent, through the socket that it inherits.
        is_clean = not live._waiters._tasks and not live._waiters._gates
        live.publish(book)
        os._exit(0 if is_clean and live.wait(live.current, 0.01) is live.current else 1)
    _, status = os.waitpid(child, 0)
    assert live.current is before and not changed.done()
    live.publish(book)
    assert await changed is live.current
    raise SystemExit(os.waitstatus_to_exitcode(status))

asyncio.run(wait())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_inherits_no_waiter():
    subprocess.run([sys.executable, "-W", "error", "-c", FORKED], check=True, timeout=DEADLINE_SECONDS)


def test_a_program_that_only_publishes_does_not_load_asyncio():
    program = "import sys, market_index; market_index.LiveIndex().publish(); assert 'asyncio' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_SECONDS)
