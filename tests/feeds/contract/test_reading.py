"""What a reader of any medium gets."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Timer

from hypothesis import Phase, find, settings

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index.strategies import market_indexes
from market_index_feeds import FeedError
from tests.feeds.contract.media import law
from tests.feeds.contract.medium import Can, Medium, Reader, content
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


@law(Can.LIVE)
def test_a_slow_reader_gets_fewer_versions(medium: Medium):
    with Reader(medium.feed()) as reader:
        reader.until(medium.write(book(1, 1)))
        fences = [medium.write(book(1, number)) for number in range(2, 40)]
        assert len(reader.until(fences[-1])) <= medium.most_unread
        assert reader.index == {ONE: book(1, 39)}


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
