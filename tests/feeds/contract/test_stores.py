"""What a publisher of any store gets."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from threading import Thread
from typing import Any

import pytest

from market_index import Freshness, InvalidFreshness, InvalidOrderBook, OrderBook, Pair
from market_index_feeds import BookTooLarge, Conflict, Position, Receipt, Source, StoreError
from tests.feeds.contract.media import law
from tests.feeds.contract.medium import Can, Medium, Reader
from tests.feeds.made_up import book, pair, spots
from tests.waiting import DEADLINE_SECONDS

ONE, TWO = pair(1), pair(2)
NOW = datetime(2026, 11, 22, 4, 17, 3, 123000, tzinfo=UTC)


@law(Can.STORE)
def test_a_store_reads_what_was_published(medium: Medium):
    with ExitStack() as stack:
        store = stack.enter_context(medium.store())
        stores = [store, stack.enter_context(medium.store())] if Can.SEVERAL in medium.can else [store]
        assert (len(store.read().index), store.position.number) == (0, 0)
        model: dict[Pair, OrderBook] = {}
        for number in range(1, 12):
            change = {pair(one): book(one, number) for one in (number, number // 2)}
            gone = {pair(number // 3), pair(99)}
            receipt = store.update(change.values(), gone, Freshness(f"slot {number}"))
            removed = [one for one in gone if one in model and one not in change]
            model = {one: found for one, found in model.items() if one not in gone} | change
            assert (receipt.published, receipt.retracted) == (len(change), len(removed))
            for opened in stores:
                version = opened.read()
                assert (dict(version.index), version.index.as_of, version.invalid) == (
                    model,
                    f"slot {number}",
                    frozenset(),
                )
                assert version.position == receipt.position == opened.position
                assert opened.read().index[pair(number)] is version.index[pair(number)]


@law(Can.STORE)
def test_receipts_have_rising_revisions(medium: Medium):
    with medium.store() as store:
        receipts = [
            store.publish(book(1, 1), book(2, 1)),
            store.publish(book(1, 1)),
            store.retract(ONE, pair(7)),
            store.replace([book(2, 1), book(3, 3)]),
            store.update([]),
        ]
        assert [(one.published, one.retracted) for one in receipts] == [(2, 0), (1, 0), (0, 1), (1, 0), (0, 0)]
        revisions = [one.position.number for one in receipts]
        assert revisions == sorted(set(revisions))
        assert spots(store.read().index) == {2: "1", 3: "3"}


@law(Can.STORE)
def test_the_last_book_of_a_pair_wins_also_over_its_retraction(medium: Medium):
    with medium.store() as store:
        receipt = store.update([book(1, 1), book(1, 2)], [ONE])
        assert (receipt.published, receipt.retracted, spots(store.read().index)) == (1, 0, {1: "2"})


@law(Can.STORE)
def test_what_is_not_given_of_a_freshness_is_kept_or_now(medium: Medium):
    with medium.store() as store:
        before = datetime.now(UTC)
        store.update([book(1, 1)], freshness=Freshness("slot 1"))
        first = store.read().index
        assert first.as_of == "slot 1"
        assert first.published_at is not None
        assert abs((first.published_at - before).total_seconds()) < 3600
        store.update([book(1, 2)])
        assert store.read().index.as_of == "slot 1"
        store.update([], freshness=Freshness(None, NOW))
        assert store.read().index.freshness == Freshness(None, NOW)
        store.update([], freshness=Freshness("slot 2"))
        store.replace([book(1, 3)])
        assert store.read().index.as_of is None


@law(Can.STORE, Can.SEVERAL)
def test_a_change_after_another_writer_conflicts_and_changes_nothing(medium: Medium):
    with medium.store() as one, medium.store() as two:
        first = one.update([book(1, 1)], after=one.position)
        two.publish(book(1, 2))
        with pytest.raises(Conflict):
            one.update([book(1, 3)], [TWO], after=first.position)
        with pytest.raises(Conflict):
            one.update([book(1, 3)], after=Position("another run", two.position.number))
        version = one.read()
        assert spots(version.index) == {1: "2"}
        one.update([book(1, 3)], after=version.position)
        assert spots(two.read().index) == {1: "3"}


@law(Can.STORE)
def test_a_change_after_another_position_conflicts_and_changes_nothing(medium: Medium):
    with medium.store() as store:
        first, second = store.publish(book(1, 1)).position, store.publish(book(1, 2)).position
        for after in (first, Position("another run", second.number), Position(second.run, second.number + 1)):
            with pytest.raises(Conflict, match="others have changed it"):
                store.update([book(1, 3)], [TWO], after=after)
        assert (spots(store.read().index), store.position) == ({1: "2"}, second)
        store.update([book(1, 3)], after=second)
        assert spots(store.read().index) == {1: "3"}


@law(Can.STORE)
@pytest.mark.parametrize(
    ("books", "retract", "freshness", "error"),
    [
        ([book(1, 2), "a book"], [], None, InvalidOrderBook),
        ([book(1, 2)], ["a pair"], None, InvalidOrderBook),
        ([book(1, 2)], [], "slot 1", InvalidFreshness),
    ],
)
def test_an_invalid_argument_changes_nothing(
    medium: Medium, books: Any, retract: Any, freshness: Any, error: type[Exception]
):
    with medium.store() as store:
        receipt = store.publish(book(1, 1))
        with pytest.raises(error):
            store.update(books, retract, freshness)
        if not retract:
            with pytest.raises(error):
                store.replace(books, freshness)
        assert (spots(store.read().index), store.position) == ({1: "1"}, receipt.position)


@law(Can.STORE)
def test_a_book_above_the_limit_is_named_and_changes_nothing(medium: Medium, monkeypatch: pytest.MonkeyPatch):
    with medium.store() as store:
        receipt = store.publish(book(1, 1))
        monkeypatch.setattr("market_index.wire.MAX_ORDER_BOOK_BYTES", 200)
        large = OrderBook.from_levels(TWO, bids=[(str(one), one) for one in range(1, 50)])
        for write in (lambda: store.update([book(1, 2), large], [ONE]), lambda: store.replace([book(1, 2), large])):
            with pytest.raises(BookTooLarge, match="at most 200 bytes") as raised:
                write()
            assert raised.value.pairs == (TWO,)
        assert (spots(store.read().index), store.position) == ({1: "1"}, receipt.position)


@law(Can.STORE)
def test_a_book_above_the_limit_can_be_left_out_and_no_as_of_is_stated(
    medium: Medium, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with medium.store() as store:
        store.update([book(1, 1), book(2, 1)], freshness=Freshness("slot 1"))
        monkeypatch.setattr("market_index.wire.MAX_ORDER_BOOK_BYTES", 200)
        large = OrderBook.from_levels(TWO, bids=[(str(one), one) for one in range(1, 50)])
        receipt = store.update([book(1, 2), large], leave_out=True)
        assert (receipt.published, receipt.left_out, receipt.freshness.as_of) == (1, (large,), "slot 1")
        receipt = store.update([book(1, 3), large], freshness=Freshness("slot 3"), leave_out=True)
        assert (spots(store.read().index), store.read().index.as_of) == ({1: "3", 2: "1"}, None)
        store.replace([book(1, 4), large], Freshness("slot 4"), leave_out=True)
        assert (spots(store.read().index), store.read().index.as_of) == ({1: "4"}, None)
        assert store.publish(book(1, 5)).left_out == ()
    assert [f"the book of {TWO}: it must" in one and one.endswith("leaving it out") for one in caplog.messages] == [
        True
    ] * 3


@law(Can.STORE, Can.NAMED)
def test_a_change_repairs_invalid_records(medium: Medium):
    with medium.store() as store:
        store.publish(book(1, 1), book(2, 1), book(3, 1))
        store.read()
        for number in (1, 4, 5):  # two of them never were a book
            medium.spoil(pair(number))
        if Can.UNNAMED in medium.can:
            medium.spoil(None)
        assert store.read().invalid - {None} == {ONE, pair(4), pair(5)}
        assert store.retract(pair(5)).retracted == 1
        assert store.read().invalid - {None} == {ONE, pair(4)}
        store.replace([book(1, 1), book(2, 1)], Freshness("slot 1"))
        version = store.read()
        assert (spots(version.index), version.index.as_of, version.invalid) == ({1: "1", 2: "1"}, "slot 1", frozenset())
    with closing(medium.feed()) as feed:
        assert spots(feed.read()) == {1: "1", 2: "1"}


@law(Can.STORE, Can.SEVERAL)
def test_threads_and_several_openers_take_turns(medium: Medium):
    with ExitStack() as stack:
        stores = [stack.enter_context(medium.store()) for _ in range(2)]
        receipts: list[Receipt] = []

        def publish(number: int) -> None:
            receipts.extend(stores[number % 2].publish(book(number, spot)) for spot in range(1, 6))

        threads = [Thread(target=publish, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({one.position.number for one in receipts}) == 20
        assert spots(stores[0].read().index) == dict.fromkeys(range(1, 5), "5")


@law(Can.STORE)
def test_a_closed_store_raises(medium: Medium):
    store = medium.store()
    store.publish(book(1, 1))
    store.close()
    store.close()
    for use in (lambda: store.publish(book(1, 2)), store.read, lambda: store.position, lambda: store.replace([])):
        with pytest.raises(StoreError, match="closed"):
            use()


@law(Can.STORE)
def test_a_store_that_a_signal_handler_closes_is_closed_after_the_call(medium: Medium, monkeypatch: pytest.MonkeyPatch):
    with medium.store() as store:
        write = store._write

        def interrupted(*arguments: Any) -> Receipt:
            store.close()
            with pytest.raises(StoreError, match="in the middle of another change"):
                store.read()
            return write(*arguments)

        monkeypatch.setattr(store, "_write", interrupted)
        assert store.publish(book(1, 1)).published == 1
        with pytest.raises(StoreError, match="closed"):
            store.publish(book(1, 2))
    with medium.store() as again:
        assert spots(again.read().index) == {1: "1"}


class InterruptedLock:
    """A lock that raises an interrupt as `acquire` returns, once."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.is_due = lock, True
        self.release = lock.release

    def acquire(self, **options: float) -> bool:
        is_acquired = bool(self.lock.acquire(**options))
        if self.is_due:
            self.is_due = False
            raise KeyboardInterrupt
        return is_acquired


@law(Can.STORE)
def test_an_interrupt_while_a_call_takes_its_turn_ends_the_turn(medium: Medium, monkeypatch: pytest.MonkeyPatch):
    with medium.store() as store:
        monkeypatch.setattr(store, "_lock", InterruptedLock(store._lock))
        with pytest.raises(KeyboardInterrupt):
            store.publish(book(1, 1))
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(store.publish, book(1, 2)).result(DEADLINE_SECONDS).published == 1
        monkeypatch.undo()


@law(Can.STORE)
def test_a_read_after_an_interrupted_one_returns_the_content(medium: Medium, monkeypatch: pytest.MonkeyPatch):
    class Interrupted(Exception):
        pass

    def interrupt(*_: object, **__: object) -> None:
        raise Interrupted

    with medium.store() as store:
        store.publish(book(1, 1), book(2, 2))
    with medium.store() as store:
        monkeypatch.setattr(Source, "derive", interrupt)
        with suppress(Interrupted):
            store.read()
        monkeypatch.undo()
        assert spots(store.read().index) == {1: "1", 2: "2"}


@law(Can.STORE)
def test_a_store_cannot_be_used_in_a_forked_process(medium: Medium):
    with medium.store() as store:
        store.publish(book(1, 1))
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                for use in (lambda: store.publish(book(1, 9)), store.read, lambda: store.position):
                    with pytest.raises(StoreError, match="opened before a fork: open it in the process that publishes"):
                        use()
                store.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        store.publish(book(2, 9))
        assert spots(store.read().index) == {1: "1", 2: "9"}


@law(Can.STORE, Can.REVISIONS)
def test_the_revision_of_a_feed_is_that_of_the_store(medium: Medium):
    with Reader(medium.feed()) as reader, medium.store() as store:
        for spot in range(1, 4):
            receipt = store.publish(book(1, spot))
            reader.until(lambda version: version.position == receipt.position)  # noqa: B023  # called at once
            assert reader.feed.health.revision == receipt.position.number
