"""The live index, with many reading and writing threads."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier, Event

import pytest

from market_index import ADA, AssetId, Freshness, InvalidOrderBook, LiveIndex, MarketIndex, OrderBook, Pair
from market_index.live import _reset_all
from tests.waiting import DEADLINE_SECONDS

PUBLISHED_AT = datetime(2026, 11, 22, tzinfo=UTC)


def pair(number: int) -> Pair:
    return Pair(AssetId(number.to_bytes(28, "big"), b""), ADA)


def test_publish_and_retract_replace_the_index():
    live = LiveIndex([OrderBook(pair(1))])
    before = live.current
    published = live.publish(OrderBook(pair(2), spot="2"), OrderBook(pair(1), spot="1"))
    assert published is live.current
    assert [info.last_spot for info in published.pair_list()] == [1, 2]
    assert list(before.values()) == [OrderBook(pair(1))]
    assert list(live.retract(pair(1), pair(3))) == [pair(2)]
    assert repr(live) == "<LiveIndex: 1 pairs>"


def test_update_retracts_and_publishes_atomically():
    live = LiveIndex([OrderBook(pair(1)), OrderBook(pair(2))])
    live.update([OrderBook(pair(2), spot="5")], [pair(1), pair(2)])
    assert live.current == MarketIndex([OrderBook(pair(2), spot="5")])


def test_a_rejected_publish_changes_nothing():
    live = LiveIndex([OrderBook(pair(1))])
    before = live.current
    with pytest.raises(InvalidOrderBook):
        live.publish(OrderBook(pair(2)), None)  # type: ignore[arg-type]  # a caller without types
    assert live.current is before
    live.publish(OrderBook(pair(3)))
    assert len(live.current) == 2


def test_no_publish_of_many_threads_is_lost():
    live = LiveIndex()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: live.publish(OrderBook(pair(number))), range(1, 2_001)))
    finally:
        sys.setswitchinterval(before)
    assert len(live.current) == 2_000


def test_an_iterable_of_books_may_itself_publish():
    live = LiveIndex()

    def books() -> Iterator[OrderBook]:
        live.publish(OrderBook(pair(1)))
        yield OrderBook(pair(2))

    live.update(books())
    assert len(live.current) == 2


def test_readers_see_whole_publishes_and_none_is_lost():
    live = LiveIndex(OrderBook(pair(number)) for number in range(1, 301))
    start, done = Barrier(6), Event()

    def read() -> None:
        start.wait(DEADLINE_SECONDS)
        is_last = False
        while not is_last:
            is_last = done.is_set()
            index = live.current
            # Each publish changes the spot prices of all 100 pairs of a writer.
            for first in (0, 100, 200):
                spots = {info.last_spot for info in index.pair_list()[first : first + 100]}
                assert len(spots) == 1, spots

    def write(first: int) -> None:
        start.wait(DEADLINE_SECONDS)
        for spot in range(1, 11):
            live.publish(*(OrderBook(pair(number), spot=str(spot)) for number in range(first, first + 100)))

    with ThreadPoolExecutor(6) as threads:
        readers = [threads.submit(read) for _ in range(3)]
        writers = [threads.submit(write, first) for first in (1, 101, 201)]
        try:
            for writer in writers:
                writer.result()
        finally:
            done.set()
        for reader in readers:
            reader.result()
    assert {info.last_spot for info in live.current.pair_list()} == {10}


class TestShow:
    """`LiveIndex.show`: a single writer replaces the whole index."""

    def test_the_index_itself_becomes_current(self):
        live = LiveIndex([OrderBook(pair(1))])
        index = MarketIndex([OrderBook(pair(2))], "block 7", PUBLISHED_AT)
        live.show(index)
        assert live.current is index

    @pytest.mark.parametrize("index", [None, {}, [OrderBook(pair(1))], LiveIndex()], ids=type)
    def test_a_value_that_is_not_a_market_index_is_rejected_and_changes_nothing(self, index):
        live = LiveIndex([OrderBook(pair(1))])
        before = live.current
        with pytest.raises(InvalidOrderBook, match=rf"^index must be a MarketIndex, got {type(index).__name__}: "):
            live.show(index)
        assert live.current is before
        live.show(MarketIndex())
        assert len(live.current) == 0

    def test_it_has_its_own_freshness_which_later_updates_keep(self):
        live = LiveIndex()
        live.update([OrderBook(pair(1))], freshness=Freshness("block 6"))
        live.show(MarketIndex([OrderBook(pair(3))], "block 7"))
        assert live.publish(OrderBook(pair(4))).as_of == "block 7"
        live.show(MarketIndex(as_of="block 8"))
        assert live.current.as_of == "block 8"

    def test_an_index_is_replaced_only_if_it_is_the_current_one(self):
        live = LiveIndex([OrderBook(pair(1))])
        mine, following = live.current, MarketIndex([OrderBook(pair(2))])
        assert live.show(following, instead_of=mine)
        assert live.current is following
        assert not live.show(MarketIndex(), instead_of=mine)
        # An equal index may be of another writer.
        assert not live.show(MarketIndex(), instead_of=MarketIndex(following.values()))
        assert live.current is following
        assert live.show(mine)

    def test_of_many_writers_that_replace_the_same_index_one_succeeds(self):
        live, start = LiveIndex(), Barrier(8)
        empty = live.current

        def show(number: int) -> bool:
            start.wait(DEADLINE_SECONDS)
            return live.show(MarketIndex([OrderBook(pair(number))]), instead_of=empty)

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(show, range(1, 9))) == 1
        assert len(live.current) == 1

    def test_readers_of_another_thread_see_whole_indexes(self):
        indexes = [MarketIndex(OrderBook(pair(of), spot=str(spot)) for of in range(1, 101)) for spot in (1, 2)]
        live, start, done = LiveIndex(), Barrier(2), Event()
        live.show(indexes[0])

        def read() -> None:
            start.wait(DEADLINE_SECONDS)
            is_last = False
            while not is_last:
                is_last = done.is_set()
                assert len({info.last_spot for info in live.current.pair_list()}) == 1

        with ThreadPoolExecutor(1) as threads:
            reader = threads.submit(read)
            start.wait(DEADLINE_SECONDS)
            try:
                for number in range(10_000):
                    live.show(indexes[number % 2])
            finally:
                done.set()
            reader.result()


def test_a_live_index_cannot_be_pickled_or_copied():
    live = LiveIndex()
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"^a LiveIndex is a reference and cannot be pickled or copied; pickle"):
            duplicate(live)
    assert live != LiveIndex()


SIGNALLED = """
import signal, sys
from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair

live = LiveIndex()
book = OrderBook(Pair(AssetId(bytes(28), b""), ADA))
outcomes = set()

def publish_too(*_):
    try:
        live.publish(book)
        outcomes.add("published")
    except RuntimeError:
        outcomes.add("rejected")

signal.signal(signal.SIGALRM, publish_too)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
number = 0
while "rejected" not in outcomes:
    number += 1
    live.publish(*(OrderBook(Pair(AssetId(one.to_bytes(28), b"x"), ADA)) for one in range(1, 300)))
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(live.current) >= 299
"""


@pytest.mark.parametrize("change", ["publish", "show"])
def test_a_change_that_interrupts_an_update_of_its_thread_is_rejected(change: str, monkeypatch: pytest.MonkeyPatch):
    live, other = LiveIndex(), OrderBook(pair(1))
    with_books = MarketIndex.with_books

    def interrupted(index: MarketIndex, *books: OrderBook) -> MarketIndex:
        with pytest.raises(RuntimeError) as raised:
            live.publish(other) if change == "publish" else live.show(MarketIndex([other]))
        assert str(raised.value) == (
            "a LiveIndex must not be updated by a signal handler that interrupts an update of it"
        )
        return with_books(index, *books)

    monkeypatch.setattr(MarketIndex, "with_books", interrupted)
    assert list(live.publish(OrderBook(pair(2)))) == [pair(2)]


def test_a_publish_in_a_signal_handler_that_interrupts_a_publish_is_rejected_and_does_not_hang():
    subprocess.run([sys.executable, "-c", SIGNALLED], check=True, timeout=DEADLINE_SECONDS)


FORKED = """
import os, threading
from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair

live = LiveIndex()
updating, done = threading.Event(), threading.Event()

def update():
    with live._lock:
        updating.set()
        done.wait()

threading.Thread(target=update).start()
updating.wait()
child = os.fork()
if child == 0:
    live.publish(OrderBook(Pair(AssetId(bytes(28), b""), ADA)))
    os._exit(0 if len(live.current) == 1 else 1)
_, status = os.waitpid(child, 0)
done.set()
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def test_a_new_lock_replaces_one_that_an_update_holds():
    live = LiveIndex()
    with ThreadPoolExecutor(1) as threads:
        # The updating thread does not exist in a forked child.
        threads.submit(live._lock.acquire).result()
        live._is_updating = True
        _reset_all()
    assert len(live.publish(OrderBook(pair(1)))) == 1


def test_a_child_that_was_forked_during_an_update_can_publish():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=DEADLINE_SECONDS)
