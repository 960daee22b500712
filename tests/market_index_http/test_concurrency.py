"""Readers on several connections while ten thousand books are published: no response mixes two books."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index_http import create_app
from tests.service import Client, served
from tests.waiting import eventually

PAIR = Pair(AssetId(b"\x01" * 28, b"torn?"), ADA)
OTHER = Pair(AssetId(b"\x02" * 28, b"torn?"), ADA)
PUBLISHES = 10_000
LEVELS = 5


def book(pair: Pair, generation: int) -> OrderBook:
    """Return a book in which every number follows from the generation."""
    prices = range(generation + 1, generation + 1 + LEVELS)
    return OrderBook.from_levels(
        pair,
        bids=[(f"0.{price:09}", generation) for price in prices],
        asks=[(f"1.{price:09}", generation) for price in prices],
        spot=str(generation),
    )


def test_no_response_is_torn_while_ten_thousand_books_are_published():
    live = LiveIndex([book(PAIR, 1), book(OTHER, 1)])
    done = Event()
    newest_of = [0] * 4

    def read(port: int, reader: int) -> None:
        client, newest = Client(port), 0
        while not done.is_set():
            answer = client.request(f"/trading-view/order-book?base={PAIR.base}&quote=ADA").json
            generation = int(answer["spot"])
            assert {level["accumulated_liquidity"] for side in ("bids", "asks") for level in answer[side]} == {
                generation
            }
            assert [level["price"] for level in answer["asks"]] == [
                f"1.{price:09}".rstrip("0") for price in range(generation + 1, generation + 1 + LEVELS)
            ]
            assert generation >= newest
            newest_of[reader] = newest = generation
            listed = client.request("/trading-view/pair-list").json["pairs"]
            # Both books are published atomically, so both spots change together.
            assert listed[0]["last_spot"] == listed[1]["last_spot"]
            assert int(listed[0]["last_spot"]) >= newest
        client.close()

    with served(create_app(live)) as service, ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read, service.port, reader) for reader in range(4)]
        try:
            for generation in range(2, PUBLISHES + 1):
                live.publish(book(PAIR, generation), book(OTHER, generation))
                if generation == PUBLISHES // 2:
                    eventually(lambda: all(newest_of) or any(reader.done() for reader in readers))
        finally:
            done.set()
        for reader in readers:
            reader.result()
        assert service.order_book(str(PAIR.base), "ADA").json["spot"] == str(PUBLISHES)
    assert max(newest_of) > 1
