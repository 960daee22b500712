"""What a reader of any medium gets."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from threading import Timer

import pytest
from hypothesis import Phase, find, settings

from market_index import ADA, AssetId, Freshness, LiveIndex, OrderBook, Pair
from market_index.strategies import market_indexes
from market_index_feeds import FeedError
from tests.feeds.contract.media import law
from tests.feeds.contract.medium import Can, Medium, Reader, Ticks, content
from tests.feeds.made_up import book, pair, spots
from tests.waiting import eventually, in_thread

ONE, TWO, THREE = pair(1), pair(2), pair(3)
NOW = datetime(2026, 11, 22, 4, 17, 3, 123000, tzinfo=UTC)
ODD = [
    OrderBook(Pair(AssetId(bytes(28), b""), ADA), spot="0.00000001"),
    OrderBook.from_levels(
        Pair(ADA, AssetId(b"\xff" * 28, b"/:." + bytes(29))),
        bids=[("79228162514264337593543950335", 2**64 - 1)],
        asks=[("0.0000000000000000000000000001", 1)],
    ),
    OrderBook.from_levels(pair(4), bids=[(str(number), number) for number in range(1, 4000)]),
]
ARBITRARY = find(
    market_indexes(min_pairs=5),
    lambda index: True,
    settings=settings(derandomize=True, database=None, phases=[Phase.generate]),
)


@law(Can.ANY_BOOK)
def test_the_first_version_is_what_was_published(medium: Medium):
    books = [*ODD, *ARBITRARY.values()]
    fence = medium.write(*books)
    with Reader(medium.feed()) as reader:
        reader.until(fence)
        assert reader.index == {one.pair: one for one in books}


@law(Can.LIVE, Can.REPLACE)
@pytest.mark.decision(27)
def test_replaced_content_is_never_mixed(medium: Medium):
    with Reader(medium.feed()) as reader:
        reader.until(medium.write(*[book(number, 1) for number in range(1, 50)]))
        equal = reader.index[pair(7)]
        seen = reader.until(medium.replace(book(7, 1), *[book(number, 2) for number in range(50, 90)]))
        assert {frozenset(spots(content(version.index)).values()) for version in seen} <= {
            frozenset({"1"}),
            frozenset({"1", "2"}),
        }
        assert spots(reader.index) == {7: "1"} | dict.fromkeys(range(50, 90), "2")
        assert "Order" in type(medium).__name__ or reader.index[pair(7)] is equal


@law(Can.LIVE, Can.NAMED)
@pytest.mark.decision(24)
def test_an_invalid_record_keeps_the_book_of_its_pair(medium: Medium, caplog: pytest.LogCaptureFixture):
    with Reader(medium.feed()) as reader:
        reader.until(medium.write(book(1, 1), book(2, 1), freshness=Freshness("slot 1")))
        with caplog.at_level(logging.WARNING):
            reader.until(medium.spoil(ONE), lambda version: ONE in version.invalid)
            reader.until(medium.write(book(2, 2), freshness=Freshness("slot 2")))
        assert reader.index == {ONE: book(1, 1), TWO: book(2, 2)}
        version = reader.versions[-1]
        assert (version.index.as_of, version.invalid, reader.feed.health.current_rejections) == (
            None,
            frozenset({ONE}),
            1,
        )
        assert (reader.feed.health.rejected, [record.levelname for record in caplog.records]) == (1, ["WARNING"])
        assert " rejected: " in caplog.messages[0]
        reader.until(medium.write(book(1, 3), freshness=Freshness("slot 3")))
        assert reader.index == {ONE: book(1, 3), TWO: book(2, 2)}
        assert (reader.index.as_of, reader.versions[-1].invalid) == ("slot 3", frozenset())


@law(Can.STORE, Can.NAMED)
def test_a_reader_that_has_no_valid_book_of_an_invalid_record_lacks_the_pair(medium: Medium):
    medium.write(book(1, 1), book(2, 1), freshness=Freshness("slot 1"))
    # Overwritten as a whole: a file has only the invalid line of the pair.
    fence = medium.spoil(THREE)
    with Reader(medium.feed()) as reader:
        reader.until(fence)
        assert reader.index == {ONE: book(1, 1), TWO: book(2, 1)}
        assert (reader.index.as_of, reader.versions[-1].invalid) == (None, frozenset({THREE}))


@law(Can.STORE, Can.NAMED)
@pytest.mark.decision(24)
def test_a_store_whose_records_are_all_invalid_is_a_problem(medium: Medium, live: LiveIndex):
    medium.write(book(1, 1))
    medium.spoil(ONE)
    with pytest.raises(FeedError, match="contains no valid order book"):
        medium.feed().read()
    with medium.feed() as feed:
        feed.start(live)
        assert (feed.health.problem, feed.health.is_unknown, len(live.current)) == (
            "contains no valid order book",
            True,
            0,
        )
        medium.write(book(1, 2))
        eventually(lambda: (spots(live), feed.health.problem) == ({1: "2"}, None))


@law(Can.LIVE, Can.BLANK)
@pytest.mark.decision(31)
def test_a_source_into_which_nothing_was_published_has_no_version(medium: Medium):
    if Can.STORE in medium.can:
        medium.write()  # a heartbeat
    with pytest.raises(FeedError, match=r"contains no (order book|reset)|has no block"):
        medium.feed().read()
    with Reader(medium.feed(), Ticks(limit=5)) as reader:
        assert reader.end()
        assert (reader.feed.health.is_unknown, reader.feed.version, reader.versions) == (True, None, [])
    with Reader(medium.feed(), Ticks(then={3: lambda: medium.write(book(1, 1))})) as reader:
        reader.pull()
        assert (reader.books, reader.feed.health.problem, reader.feed.health.is_unknown) == (
            {ONE: book(1, 1)},
            None,
            False,
        )


@law(Can.STORE, Can.NAMED)
@pytest.mark.decision(31)
def test_a_recreated_store_without_a_valid_record_keeps_what_it_showed(medium: Medium):
    with Reader(medium.feed()) as reader:
        reader.until(medium.write(book(1, 1), book(2, 2)))
        before = reader.versions[-1]
        medium.reset()
        medium.write(freshness=Freshness("slot 1"))
        reader.until(lambda _: reader.feed.health.problem == "contains no order book")
        medium.spoil(ONE)
        reader.until(lambda _: reader.feed.health.problem == "contains no valid order book")
        assert reader.pull() is before
        with medium.store() as store:
            version = store.read()
            assert (dict(version.index), version.invalid) == ({}, frozenset({ONE}))
        reader.until(medium.write(book(2, 2)))
        assert (reader.books, reader.problem()) == ({ONE: book(1, 1), TWO: book(2, 2)}, None)
        assert all(reader.index[pair] is before.index[pair] for pair in (ONE, TWO))
        reader.until(medium.write(retract=(ONE,)))
        assert reader.books == {TWO: book(2, 2)}


@law(Can.LIVE)
def test_a_live_index_shows_each_version_until_the_feed_is_closed(medium: Medium, live: LiveIndex):
    medium.write(book(1, 1))
    with medium.feed() as feed:
        feed.start(live)
        assert content(live.current) == {ONE: book(1, 1)}
        medium.write(book(1, 2))
        eventually(lambda: content(live.current) == {ONE: book(1, 2)})
        assert feed.version is not None
        assert feed.version.index is live.current
    shown = live.current
    fence = medium.write(book(1, 3))
    if Can.MANY in medium.can:
        with Reader(medium.feed()) as reader:
            reader.until(fence)
    assert live.current is shown


@law(Can.LIVE, Can.BLANK)
def test_a_feed_starts_with_a_problem_if_nothing_was_published(medium: Medium, live: LiveIndex):
    with medium.feed() as feed:
        feed.start(live)
        assert (len(live.current), feed.health.is_unknown, feed.version) == (0, True, None)
        medium.write(book(1, 1))
        eventually(lambda: content(live.current) == {ONE: book(1, 1)})


@law(Can.LIVE, Can.MANY)
def test_a_feed_can_be_closed_at_any_moment(medium: Medium):
    medium.write(*[book(number, 1) for number in range(1, 300)])
    for moment in range(6):
        live, feed = LiveIndex(), medium.feed()
        timer = Timer(moment / 250, feed.close)
        timer.start()
        try:
            feed.start(live)
        except FeedError as error:
            assert "closed" in str(error)  # noqa: PT017  # or it does not raise
        timer.join()
        shown = live.current
        thread = in_thread(lambda: medium.write(book(1, 2)))
        thread.join()
        assert live.current is shown
        assert len(shown) in {0, 299 + (1 if 0 in spots(shown) else 0)}
