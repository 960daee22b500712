"""Rows with a valid digest that contain no valid book: they are never read, served or relayed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import TypeAlias

import pytest

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair, PairNotFound, wire
from market_index_feeds import FeedError, Relay, Store, open_feed, open_store
from market_index_feeds.sqlite.connection import StoreConnection
from market_index_feeds.sqlite.rows import ALL_ROWS
from tests.market_index_feeds.made_up import book
from tests.market_index_feeds.media import File
from tests.market_index_feeds.sqlite.files import forge
from tests.waiting import DEADLINE_SECONDS, eventually

Spelling: TypeAlias = Callable[[str], str]

PAIR = Pair(AssetId(b"\xab" * 28, b"\xcd"), ADA)
GOOD = OrderBook.from_levels(PAIR, bids=[("0.5", 7)], spot="0.5")
NEXT = OrderBook.from_levels(PAIR, bids=[("0.6", 8)], spot="0.6")
TEXT = str(wire.order_book_to_json(NEXT), "ascii")


def upper(text: str) -> str:
    return text.replace(str(PAIR.base), str(PAIR.base).upper())


BODIES = {
    "garbage after the book": TEXT + " GARBAGE",
    "garbage in a level": TEXT.replace('"accumulated_liquidity":8', '"accumulated_liquidity":"GARBAGE"'),
    "garbage instead of levels": TEXT.partition('"bids":')[0] + '"bids":GARBAGE',
    "a price that is not one": TEXT.replace('"price":"0.6"', '"price":"GARBAGE"'),
    "levels out of order": TEXT.replace("[{", '[{"price":"0.1","accumulated_liquidity":1},{'),
    "another pair": str(wire.order_book_to_json(book(2, 2)), "ascii"),
}


@pytest.fixture(params=BODIES)
def body(request: pytest.FixtureRequest) -> str:
    return BODIES[request.param]


@pytest.fixture
def good(store: Store) -> Store:
    """A store of two valid books."""
    store.publish(GOOD, book(1, 1))
    return store


@pytest.mark.parametrize("spelled", [str, upper], ids=["lower case", "upper case"])
class TestGarbage:
    """The row is rejected, and the last valid book stays."""

    def test_a_feed_keeps_the_last_valid_book(
        self, good: Store, path: Path, live: LiveIndex, body: str, spelled: Spelling
    ):
        with open_feed(path) as feed:
            feed.start(live)
            forge(path, str(PAIR), spelled(body))
            eventually(lambda: feed.rejected == 1)
            assert live.current.order_book(PAIR) == GOOD
            good.publish(NEXT)
            eventually(lambda: live.current.order_book(PAIR) == NEXT)

    def test_a_feed_that_starts_later_does_not_have_it(self, good: Store, path: Path, body: str, spelled: Spelling):
        forge(path, str(PAIR), spelled(body))
        feed = open_feed(path)
        assert list(feed.read().values()) == [book(1, 1)]
        assert feed.rejected == 1
        with pytest.raises(FeedError, match=f"cannot be read: row {PAIR}: "):
            open_feed(path).read_order_book(PAIR)

    def test_a_relay_does_not_pass_it_on(self, good: Store, path: Path, tmp_path: Path, body: str, spelled: Spelling):
        copy = tmp_path / "copy.db"
        with open_feed(path) as feed:
            relay = Relay(feed, lambda: open_store(copy))
            relay.start()
            running = Thread(target=relay.run)
            running.start()
            forge(path, str(PAIR), spelled(body))
            eventually(lambda: feed.rejected == 1)
            good.publish(book(3, 3))
            eventually(lambda: len(open_feed(copy).read()) == 3)
            relay.close()
            running.join(DEADLINE_SECONDS)
        assert open_feed(copy).read_order_book(PAIR) == GOOD


def test_a_row_under_the_upper_case_name_of_its_pair_is_rejected(good: Store, path: Path, live: LiveIndex):
    with open_feed(path) as feed:
        feed.start(live)
        forge(path, upper(str(PAIR)), TEXT)
        eventually(lambda: feed.rejected == 1)
        assert live.current.order_book(PAIR) == GOOD
    assert open_feed(path).read_order_book(PAIR) == GOOD


def test_a_row_in_upper_case_does_not_affect_its_pair(
    good: Store, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
):
    with open_feed(path) as feed:
        feed.start(live)
        forge(path, upper(str(PAIR)), TEXT)
        eventually(lambda: feed.rejected == 1)
        assert good.replace([GOOD, book(1, 1)]).retracted == 1
        forge(path, str(PAIR), TEXT + " GARBAGE")
        eventually(lambda: feed.rejected == 2)
        assert f"row {PAIR} rejected" in caplog.text
        assert live.current.order_book(PAIR) == GOOD


def test_a_valid_book_in_upper_case_is_read(good: Store, path: Path):
    forge(path, str(PAIR), upper(TEXT))
    assert open_feed(path).read().order_book(PAIR) == NEXT
    with pytest.raises(PairNotFound):
        open_feed(path).read_order_book(book(9).pair)


@pytest.mark.parametrize("more", [0, 1, 1_000_000])
def test_of_a_body_above_the_limit_one_byte_more_is_read(good: Store, path: Path, more: int):
    length = wire.MAX_ORDER_BOOK_BYTES + more
    File(str(path)).spoil(PAIR, b"x" * length)
    with closing(StoreConnection(path, "ro", 1)) as connection:
        bodies = {row[0]: row[2] for row in connection.sqlite.execute(ALL_ROWS)}
    assert len(bodies[str(PAIR).encode()]) == min(length, wire.MAX_ORDER_BOOK_BYTES + 1)
