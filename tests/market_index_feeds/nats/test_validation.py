"""Values with a valid digest that contain no valid order book: they are never read, served or relayed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair, wire
from market_index_feeds import Feed, FeedError, Relay, Store, open_feed, open_store
from market_index_feeds.nats.records import DIGEST_HEADER, digest_of, key_of, record_of
from tests import nats
from tests.market_index_feeds.made_up import book, pair, spots
from tests.waiting import DEADLINE_SECONDS, eventually

ONE = Pair(AssetId(bytes([0xAB]) * 28, b"\xcd"), ADA)
GOOD = OrderBook.from_levels(ONE, bids=[("0.5", 7)], spot="1")


def upper(text: bytes) -> bytes:
    """The same text with its identifiers in upper case hex."""
    return text.replace(ONE.base.policy_id.hex().encode(), ONE.base.policy_id.hex().upper().encode())


def garbage(text: bytes) -> bytes:
    return text[: text.index(b'"bids":')] + b'"bids":[GARBAGE'


def level_of_nothing(text: bytes) -> bytes:
    return text.replace(b'"accumulated_liquidity":7', b'"accumulated_liquidity":0')


def trailing_garbage(text: bytes) -> bytes:
    return text + b" GARBAGE"


@pytest.fixture(params=[garbage, level_of_nothing, trailing_garbage])
def spoil(request: pytest.FixtureRequest) -> Callable[[bytes], bytes]:
    return request.param  # type: ignore[no-any-return]  # pytest declares it as Any


@pytest.fixture(params=["lower", "upper"])
def spoiled(request: pytest.FixtureRequest, spoil: Callable[[bytes], bytes]) -> bytes:
    text = spoil(wire.order_book_to_json(GOOD))
    return upper(text) if request.param == "upper" else text


def put(server: nats.Server, bucket: str, text: bytes) -> None:
    """Store a value under the key of the pair, with the digest that a store would write."""
    nats.put(server, nats.name_of(bucket), key_of(ONE), zlib.compress(text), {DIGEST_HEADER: digest_of(text)})


def test_an_invalid_value_is_rejected_and_the_last_valid_book_stays(
    store: Store,
    feed: Feed,
    live: LiveIndex,
    bucket: str,
    nats_server: nats.Server,
    spoiled: bytes,
    logged: pytest.LogCaptureFixture,
):
    store.publish(GOOD)
    eventually(lambda: ONE in live.current)
    put(nats_server, bucket, spoiled)
    eventually(lambda: feed.rejected == 1)
    assert f"value {key_of(ONE)} rejected" in logged.text
    store.publish(book(1, 9))
    eventually(lambda: live.current.order_book(pair(1)) == book(1, 9))
    assert live.current.order_book(ONE) == GOOD
    store.publish(OrderBook(ONE, spot="2"))
    eventually(lambda: live.current.order_book(ONE).spot is not None and str(live.current.order_book(ONE).spot) == "2")


def test_an_invalid_value_is_neither_read_nor_relayed(
    store: Store, bucket: str, nats_server: nats.Server, spoiled: bytes, tmp_path: Path
):
    store.publish(GOOD, book(1, 1))
    put(nats_server, bucket, spoiled)
    with open_feed(bucket) as other:
        assert spots(other.read()) == {1: "1"}
        assert other.rejected == 1
    with pytest.raises(FeedError, match=f"value {key_of(ONE)}"):
        open_feed(bucket).read_order_book(ONE)
    copy = tmp_path / "copy.db"
    with open_store(copy) as before:
        before.publish(GOOD)
    with open_feed(bucket) as source:
        relay = Relay(source, lambda: open_store(copy))
        relay.start()
        thread = Thread(target=relay.run)
        thread.start()
        store.publish(book(1, 2))
        eventually(lambda: open_feed(copy).read().order_book(pair(1)) == book(1, 2))
        relay.close()
        thread.join(DEADLINE_SECONDS)
    assert open_feed(copy).read().order_book(ONE) == GOOD


def test_replace_and_a_relay_that_starts_correct_garbage_with_the_digest_of_the_right_book(
    store: Store, bucket: str, nats_server: nats.Server, tmp_path: Path
):
    """What is compared is what a reader would read."""
    right = record_of(GOOD)
    store.replace([GOOD, book(1, 1)])
    for headers in (right.headers, {**right.headers, "KV-Operation": "DEL"}):
        for value in (b"GARBAGE", right.value + b" "):
            nats.put(nats_server, nats.name_of(bucket), key_of(ONE), value, dict(headers))
            assert ONE not in open_feed(bucket).read()
            assert store.replace([GOOD, book(1, 1)]).published == 1
            assert open_feed(bucket).read().order_book(ONE) == GOOD
    copy = tmp_path / "copy.db"
    with open_store(copy) as source:
        source.replace([GOOD, book(1, 1)])
    nats.put(nats_server, nats.name_of(bucket), key_of(ONE), b"GARBAGE", dict(right.headers))
    with open_feed(copy) as feed:
        relay = Relay(feed, lambda: open_store(bucket))
        assert relay.start().published == 1
        relay.close()
        relay.run()
    assert open_feed(bucket).read() == MarketIndex([GOOD, book(1, 1)])


def test_identifiers_in_upper_case_are_read(
    store: Store, feed: Feed, live: LiveIndex, bucket: str, nats_server: nats.Server
):
    put(nats_server, bucket, upper(wire.order_book_to_json(GOOD)))
    eventually(lambda: ONE in live.current)
    assert live.current.order_book(ONE) == GOOD
    assert wire.order_book_to_json(live.current.order_book(ONE)) == wire.order_book_to_json(GOOD)
