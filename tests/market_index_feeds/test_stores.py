"""The same tests of publishing and following for each kind of store: a file and a bucket."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings

from market_index import (
    ADA,
    AssetId,
    Freshness,
    InvalidOrderBook,
    LiveIndex,
    MarketIndex,
    OrderBook,
    Pair,
    PairNotFound,
    strategies,
    wire,
)
from market_index.levels import MAX_LIQUIDITY
from market_index_feeds import BooksRejected, Feed, FeedError, Receipt, Store, StoreError, open_feed, open_store
from tests import nats
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.media import Bucket, File, Medium
from tests.waiting import WITHOUT_SHRINKING, eventually, in_thread


@pytest.fixture(params=["file", "bucket"])
def medium(request: pytest.FixtureRequest, tmp_path: Path) -> Medium:
    if request.param == "file":
        return File(str(tmp_path / "market.db"))
    server: nats.Server = request.getfixturevalue("nats_server")
    return Bucket(request.getfixturevalue("bucket"), server)


@pytest.fixture
def store(medium: Medium) -> Iterator[Store]:
    with open_store(medium.target) as store:
        yield store


def read(medium: Medium) -> MarketIndex:
    return open_feed(medium.target).read()


class TestPublishing:
    """The effects of a change."""

    def test_a_store_is_unchanged_by_others_from_its_last_replace_on(self, store: Store, medium: Medium):
        assert not store.is_unchanged_by_others()
        store.replace([book(1, 1)])
        assert store.is_unchanged_by_others()
        store.publish(book(2, 2))
        assert store.is_unchanged_by_others()
        with open_store(medium.target) as other:
            other.publish(book(3, 3))
        assert not store.is_unchanged_by_others()

    def test_what_is_published_goes_live_and_revisions_rise(self, store: Store, feed: Feed, live: LiveIndex):
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        before = store.revision
        receipts = [store.publish(book(4, 4), book(2, "2.5"))]
        eventually(lambda: spots(live) == {1: "1", 2: "2.5", 3: "3", 4: "4"})
        receipts.append(store.retract(pair(1), pair(9)))
        eventually(lambda: spots(live) == {2: "2.5", 3: "3", 4: "4"})
        receipts.append(store.publish(book(1, 7)))
        eventually(lambda: spots(live) == {1: "7", 2: "2.5", 3: "3", 4: "4"})
        assert [(one.published, one.retracted) for one in receipts] == [(2, 0), (0, 1), (1, 0)]
        assert [one.pairs for one in receipts] == [{pair(2), pair(4)}, set(), {pair(1)}]
        revisions = [before, *(one.revision for one in receipts)]
        assert revisions == sorted(set(revisions))
        eventually(lambda: feed.revision == store.revision == revisions[-1])

    def test_a_call_without_arguments_makes_no_revision(self, store: Store):
        assert store.publish() == store.retract() == Receipt(0)
        store.publish(book(1))
        last = store.retract(pair(1), pair(1)).revision
        assert store.retract() == store.publish() == Receipt(last)

    def test_a_retract_of_what_is_not_stored_is_a_revision_too(self, store: Store):
        assert store.retract(pair(1)) == Receipt(1)
        store.publish(book(1))
        last = store.retract(pair(1)).revision
        assert store.retract(pair(1)) == Receipt(last + 1)

    def test_the_last_book_of_a_repeated_pair_wins(self, store: Store, medium: Medium):
        receipt = store.publish(book(1, 1), book(2), book(1, 2))
        assert receipt.published == 2
        assert spots(read(medium)) == {1: "2", 2: None}

    def test_only_changed_books_are_read(self, store: Store, feed: Feed, live: LiveIndex):
        kept = live.current.order_book(pair(1))
        store.publish(book(2, 9))
        eventually(lambda: spots(live)[2] == "9")
        assert feed.books == 4
        assert live.current.order_book(pair(1)) is kept

    @settings(
        max_examples=20,
        phases=WITHOUT_SHRINKING,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(index=strategies.market_indexes())
    def test_every_book_is_read_back_unchanged(self, store: Store, medium: Medium, index: MarketIndex):
        store.replace(index.values())
        assert read(medium) == index
        for one in list(index.values())[:2]:
            assert open_feed(medium.target).read_order_book(one.pair) == one

    def test_unusual_identifiers_are_distinguished(self, store: Store, medium: Medium, feed: Feed, live: LiveIndex):
        zeros, ones = bytes(28), b"\xff" * 28
        names = [b"", b"\x00", b"\x00\x00", b"\xff" * 32, b".", b">", b"*", b"-", b"/", "₳".encode(), b"\r\n"]
        assets = [ADA, *(AssetId(policy, name) for policy in (zeros, ones) for name in names)]
        pairs = [Pair(base, quote) for base in assets for quote in assets[:4] if base != quote]
        books = [OrderBook(one, spot=str(number + 1)) for number, one in enumerate(pairs)]
        store.replace(books)
        eventually(lambda: live.current == MarketIndex(books))
        assert read(medium) == MarketIndex(books)
        assert store.retract(*pairs[1:]).retracted == len(pairs) - 1
        eventually(lambda: live.current == MarketIndex(books[:1]))

    def test_a_large_book_is_stored(self, store: Store, feed: Feed, medium: Medium, live: LiveIndex):
        levels = [(f"0.{number:06}", MAX_LIQUIDITY - number) for number in range(1, 5001)]
        big = OrderBook.from_levels(pair(1), bids=levels, asks=[(f"1{price}", amount) for price, amount in levels])
        store.publish(big)
        eventually(lambda: live.current.order_book(pair(1)) == big)
        assert open_feed(medium.target).read_order_book(pair(1)) == big

    def test_each_reader_shows_the_changes_in_their_order(self, store: Store, feed: Feed, live: LiveIndex):
        last = 0
        for spot in range(1, 101):
            store.publish(book(1, spot), book(2, spot))
            seen = spots(live)
            assert int(seen[1] or 0) >= last
            last = int(seen[1] or 0)
        eventually(lambda: spots(live) == {1: "100", 2: "100", 3: "3"})

    def test_an_invalid_argument_is_rejected_and_nothing_is_stored(self, store: Store):
        with pytest.raises(InvalidOrderBook, match="book must be an OrderBook, got str: 'book'"):
            store.publish(book(1), "book")  # type: ignore[arg-type]
        with pytest.raises(InvalidOrderBook, match="book must be an OrderBook, got Pair"):
            store.replace([book(1), pair(1)])  # type: ignore[list-item]
        for write in (store.retract, lambda one: store.replace([], [one])):
            with pytest.raises(TypeError, match="pair must be a Pair, got str: 'ADA'"):
                write("ADA")  # type: ignore[arg-type]
        assert store.revision == 0

    def test_freshness_excludes_as_of(self, store: Store):
        for write in (store.update, store.replace):
            with pytest.raises(TypeError, match="either as_of or freshness must be given, got both"):
                write([book(1)], as_of="slot 1", freshness=Freshness("slot 2"))
        assert store.revision == 0

    def test_using_a_closed_store_is_an_error(self, medium: Medium):
        store = open_store(medium.target)
        assert repr(store) == f"<{medium.kind}Store {medium.target}>"
        store.publish(book(1))
        store.close()
        store.close()
        for work in (lambda: store.publish(book(1)), lambda: store.retract(pair(1)), lambda: store.revision):
            with pytest.raises(StoreError, match=re.escape(f"{medium.target} is closed")):
                work()

    def test_any_thread_may_publish(self, store: Store, medium: Medium):
        def publish(number: int) -> None:
            for spot in range(1, 21):
                store.publish(book(number, spot))

        threads = [Thread(target=publish, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.revision == (100 if medium.kind == "Sqlite" else 200)
        assert spots(read(medium)) == dict.fromkeys(range(5), "20")

    def test_publishers_do_not_undo_what_the_others_did(self, store: Store, medium: Medium):
        with open_store(medium.target) as other:
            for spot in range(1, 11):
                store.publish(book(1, spot), book(2, spot))
                other.publish(book(2, -spot % 100), book(3, spot))
        assert spots(read(medium)) == {1: "10", 2: "90", 3: "10"}

    def test_the_timeout_must_be_0_or_more_seconds(self, medium: Medium):
        for wait in (-1, float("nan")):
            with pytest.raises(ValueError, match="wait must be 0 or more seconds"):
                open_store(medium.target, wait=wait)

    def test_a_missing_store_is_created_unless_make_is_false(self, medium: Medium):
        with pytest.raises(StoreError, match="cannot be opened"):
            open_store(medium.target, make=False)
        with pytest.raises(FeedError, match=r"cannot be (opened|read)"):
            open_feed(medium.target).read()
        open_store(medium.target).close()
        open_store(medium.target, make=False).close()
        assert len(read(medium)) == 0


class TestLargeBooks:
    """Books whose JSON is larger than `wire.MAX_ORDER_BOOK_BYTES`."""

    LARGE = OrderBook.from_levels(pair(1), bids=[(f"0.{number:06}", number) for number in range(1, 500)])

    @pytest.fixture(autouse=True)
    def small_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wire, "MAX_ORDER_BOOK_BYTES", 10_000)

    def test_a_book_at_the_limit_is_stored(self, store: Store, medium: Medium, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(wire, "MAX_ORDER_BOOK_BYTES", len(wire.order_book_to_json(self.LARGE)))
        store.publish(self.LARGE)
        assert read(medium)[pair(1)] == self.LARGE

    def test_a_book_above_the_limit_does_not_stop_others(self, store: Store, medium: Medium):
        store.publish(book(1, 1), book(2, 2), book(3, 3))
        reason = re.escape(f"does not accept the book of {pair(1)}: it must have at most 10000 bytes of JSON, got ")
        with pytest.raises(BooksRejected, match=reason) as raised:
            store.update([self.LARGE, book(2, 9)], [pair(3)])
        receipt = raised.value.receipt
        assert (raised.value.limit, raised.value.can_retry) == ("10000 bytes of JSON", False)
        assert (raised.value.pairs, receipt.published, receipt.retracted) == ((pair(1),), 1, 1)
        assert receipt.pairs == {pair(2)}
        assert receipt.revision == store.revision
        assert spots(read(medium)) == {1: "1", 2: "9"}

    def test_the_last_book_of_a_repeated_pair_counts(self, store: Store, medium: Medium):
        for write in (store.publish, lambda *books: store.replace(books)):
            with pytest.raises(BooksRejected):
                write(book(1, 1), self.LARGE)
            assert spots(read(medium)) == {}
            write(self.LARGE, book(1, 1))
            assert spots(read(medium)) == {1: "1"}
            store.retract(pair(1))

    def test_replace_keeps_the_last_book_of_the_pair(self, store: Store, medium: Medium):
        store.publish(book(1, 1), book(2, 2))
        other = self.LARGE.apply(spot="5")
        with pytest.raises(BooksRejected, match="bytes of JSON, got") as raised:
            store.replace([OrderBook(pair(7), other.bids), self.LARGE, book(3, 3)])
        assert set(raised.value.pairs) == {pair(1), pair(7)}
        assert "and those of 1 others" in str(raised.value)
        assert (raised.value.receipt.published, raised.value.receipt.retracted) == (1, 1)
        assert raised.value.receipt.pairs == {pair(3)}
        assert spots(read(medium)) == {1: "1", 3: "3"}

    def test_a_store_that_lacks_the_book_of_a_new_pair_is_not_complete(self, store: Store, medium: Medium):
        def is_complete() -> bool:
            new = open_feed(medium.target)
            new.read()
            return new.content.coverage.is_complete

        with pytest.raises(BooksRejected):
            store.replace([self.LARGE, book(2, 2)])
        assert not is_complete()
        store.publish(book(1, 1))
        with pytest.raises(BooksRejected):
            store.replace([self.LARGE, book(2, 2)])
        assert is_complete()

    def test_the_as_of_is_not_known_while_an_older_book_is_stored(self, store: Store, medium: Medium):
        store.publish(book(1, 1))
        for write in (store.update, store.replace):
            with pytest.raises(BooksRejected):
                write([self.LARGE], as_of="2")
            assert read(medium).as_of is None
            store.update([book(2, 2)], as_of="3")
            assert read(medium).as_of is None
            store.update([book(1, 3)], as_of="4")
            assert read(medium).as_of == "4"
        with pytest.raises(BooksRejected):
            store.publish(self.LARGE)
        assert read(medium).as_of is None
        store.update((), [pair(1)], as_of="5")
        assert read(medium).as_of == "5"

    def test_a_value_above_the_limit_is_rejected_by_readers(
        self, store: Store, feed: Feed, medium: Medium, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        medium.spoil(pair(1), wire.order_book_to_json(self.LARGE))
        eventually(lambda: feed.rejected == 1)
        assert "must have at most 10000 bytes of JSON, got more" in logged.text
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        assert spots(read(medium)) == {2: "2", 3: "3"}
        with pytest.raises(FeedError, match="must have at most 10000 bytes of JSON, got more"):
            open_feed(medium.target).read_order_book(pair(1))


class TestReplacing:
    """Making some books the whole content of a store."""

    def test_pairs_that_are_not_named_are_retracted(self, store: Store, feed: Feed, live: LiveIndex):
        receipt = store.replace([book(3, 3), book(2, 9), book(5, 5)])
        assert (receipt.published, receipt.retracted) == (2, 1)
        assert receipt.pairs == {pair(2), pair(5)}
        eventually(lambda: spots(live) == {2: "9", 3: "3", 5: "5"})
        assert feed.books == 5, "an equal book must not be read again"

    def test_with_pairs_to_retract_all_others_are_kept_and_the_as_of_is_not_known(
        self, store: Store, feed: Feed, live: LiveIndex
    ):
        receipt = store.replace([book(1, 7)], [pair(1), pair(3), pair(9)], as_of="slot 7")
        assert (receipt.published, receipt.retracted, receipt.kept) == (1, 1, frozenset([pair(2)]))
        eventually(lambda: spots(live) == {1: "7", 2: "2"})
        assert live.current.as_of is None
        receipt = store.replace([book(1, 7)], [pair(2)], as_of="slot 8")
        assert (receipt.published, receipt.retracted, receipt.kept) == (0, 1, frozenset())
        eventually(lambda: (spots(live), live.current.as_of) == ({1: "7"}, "slot 8"))

    @pytest.mark.decision(31)
    def test_a_store_is_complete_from_its_first_replace_of_all_pairs_on(self, store: Store, feed: Feed, medium: Medium):
        def is_complete() -> bool:
            new = open_feed(medium.target)
            new.read()
            return new.content.coverage.is_complete

        store.replace([book(1, 1)], [pair(2), pair(3)])
        assert not is_complete()
        store.replace([book(1, 1)])
        eventually(lambda: feed.content.coverage.is_complete)
        store.update([book(2, 2)], [pair(1)], as_of="slot 2")
        assert is_complete()
        with open_store(medium.target) as other:
            other.publish(book(3, 3))
            other.replace([book(3, 4)], [])
        assert is_complete()

    def test_an_exception_of_the_iterable_changes_nothing(
        self, store: Store, feed: Feed, medium: Medium, live: LiveIndex
    ):
        def books() -> Iterator[OrderBook]:
            for number in range(1000):
                yield book(number, 1)
            raise ZeroDivisionError

        now = Freshness(None, datetime.now(UTC))
        before = store.replace([book(1, 1), book(2, 2), book(3, 3)], freshness=now).revision
        with pytest.raises(ZeroDivisionError):
            store.replace(books())
        assert spots(read(medium)) == spots(live) == {1: "1", 2: "2", 3: "3"}
        again = store.replace([book(1, 1), book(2, 2), book(3, 3)], freshness=now)
        assert again == Receipt(before), "there was nothing to change"
        assert store.replace([], freshness=now).retracted == 3
        eventually(lambda: spots(live) == {})
        assert store.replace([], freshness=now) == Receipt(store.revision)

    def test_others_may_publish_while_the_books_are_read(self, store: Store, medium: Medium):
        def books() -> Iterator[OrderBook]:
            yield book(1, 1)
            store.publish(book(2, 2))
            with open_store(medium.target) as other:
                other.publish(book(3, 3))
                other.replace([book(4, 4)])
            yield book(5, 5)

        receipt = store.replace(books())
        assert (receipt.published, receipt.retracted) == (2, 1)
        assert spots(read(medium)) == {1: "1", 5: "5"}


class TestFollowing:
    """Following a store."""

    def test_a_new_feed_shows_what_is_stored(self, store: Store, feed: Feed, medium: Medium):
        feed.close()
        store.publish(book(2, 8))
        store.retract(pair(3))
        again = LiveIndex()
        with open_feed(medium.target) as other:
            other.start(again)
            assert spots(again) == {1: "1", 2: "8"}
            assert (other.books, other.rejected, other.revision) == (2, 0, store.revision)
            assert repr(other) == f"<Feed of {medium.target}: 2 books, 0 rejected>"
            eventually(lambda: other.age < 1)

    def test_what_is_live_stays_live_when_it_is_closed(self, store: Store, feed: Feed, live: LiveIndex):
        feed.close()
        feed.close()
        store.publish(book(1, 9))
        assert spots(live) == {1: "1", 2: "2", 3: "3"}

    def test_feeds_that_start_during_publishes_show_all_books(self, store: Store, medium: Medium):
        published = 0

        def publish() -> None:
            nonlocal published
            for spot in range(1, 40):
                store.publish(*(book(number, spot) for number in range(50)))
                published = spot

        with ExitStack() as stack:
            publishing = in_thread(publish)
            stack.callback(publishing.join)
            lives = []
            for spot in (1, 10, 20, 30):
                eventually(lambda spot=spot: published >= spot)  # type: ignore[misc]  # a default has no type
                lives.append(LiveIndex())
                stack.enter_context(open_feed(medium.target)).start(lives[-1])
            for one in lives:
                eventually(lambda one=one: spots(one) == dict.fromkeys(range(50), "39"))  # type: ignore[misc]  # a default has no type

    @pytest.mark.parametrize(
        "text", [b"", b"{}", b"nonsense", b"\xff\xfe", b'{"base":"ADA","quote":"ADA","bids":[],"asks":[]}']
    )
    def test_an_invalid_value_affects_no_other_pair(
        self, store: Store, feed: Feed, medium: Medium, live: LiveIndex, text: bytes, logged: pytest.LogCaptureFixture
    ):
        medium.spoil(pair(1), text)
        eventually(lambda: feed.rejected == 1)
        medium.spoil(pair(1), text + b" ")
        store.publish(book(2, 9))
        eventually(lambda: spots(live) == {1: "1", 2: "9", 3: "3"})
        assert logged.text.count("rejected") == feed.rejected == 1
        index = LiveIndex()
        with open_feed(medium.target) as other:
            other.start(index)
            assert spots(index) == {2: "9", 3: "3"}
            assert other.rejected == 1
        with pytest.raises(FeedError, match="cannot be read"):
            open_feed(medium.target).read_order_book(pair(1))
        store.publish(book(1, 7))
        eventually(lambda: spots(live).get(1) == "7")
        medium.spoil(pair(1), text)
        eventually(lambda: feed.rejected == 2)

    def test_replace_repairs_an_invalid_value(self, store: Store, feed: Feed, medium: Medium, live: LiveIndex):
        medium.spoil(pair(1), b"nonsense")
        receipt = store.replace([book(1, 1), book(2, 2)])
        assert (receipt.published, receipt.retracted) == (1, 1)
        eventually(lambda: spots(live) == {1: "1", 2: "2"})
        assert spots(read(medium)) == {1: "1", 2: "2"}

    def test_a_book_that_is_not_stored_is_an_error(self, store: Store, medium: Medium):
        store.publish(book(1), book(2))
        store.retract(pair(2))
        for number in (2, 3):
            with pytest.raises(PairNotFound, match=str(pair(number))):
                open_feed(medium.target).read_order_book(pair(number))

    def test_a_feed_is_started_once(self, feed: Feed, live: LiveIndex):
        for again in (lambda: feed.start(live), feed.read):
            with pytest.raises(RuntimeError, match="a feed is started once, or read once"):
                again()

    def test_progress_can_end_the_loading(self, store: Store, medium: Medium, live: LiveIndex):
        store.publish(*map(book, range(600)))

        def enough(_: int, __: int) -> None:
            raise SystemExit(7)

        with open_feed(medium.target) as feed, pytest.raises(SystemExit):
            feed.start(live, enough)
        assert len(live.current) == 0
