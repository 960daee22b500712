"""Readers on several connections while thousands of books are published: no response mixes two books."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from market_index import ADA, AssetId, Freshness, LiveIndex, OrderBook, Pair
from market_index_http import create_app
from tests.service import Client, served
from tests.waiting import eventually

PAIR = Pair(AssetId(b"\x01" * 28, b"torn?"), ADA)
OTHER = Pair(AssetId(b"\x02" * 28, b"torn?"), ADA)
PUBLISHES = 3_000
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


@pytest.mark.decision(23)
def test_no_response_is_torn_while_thousands_of_books_are_published():
    live = LiveIndex()
    live.update([book(PAIR, 1), book(OTHER, 1)], freshness=Freshness("1"))
    targets = [f"/trading-view/order-book?base={base}&quote=ADA" for base in (str(PAIR.base), str(PAIR.base).upper())]
    done = Event()
    newest_of = [0] * 4

    def read(port: int, reader: int) -> None:
        client, newest = Client(port), 0
        while not done.is_set():
            answer = client.request(targets[newest % 2])
            content = answer.json
            generation = int(content["spot"])
            assert {level["accumulated_liquidity"] for side in ("bids", "asks") for level in content[side]} == {
                generation
            }
            assert [level["price"] for level in content["asks"]] == [
                f"1.{price:09}".rstrip("0") for price in range(generation + 1, generation + 1 + LEVELS)
            ]
            assert generation >= newest
            # Decision 23: no response claims another as_of than that of its book.
            assert answer.headers["market-index-as-of"] == str(generation)
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
                books = [book(PAIR, generation), book(OTHER, generation)]
                live.update(books, freshness=Freshness(str(generation)))
                if generation == PUBLISHES // 2:
                    eventually(lambda: all(newest_of) or any(reader.done() for reader in readers))
        finally:
            done.set()
        for reader in readers:
            reader.result()
        assert service.order_book(str(PAIR.base), "ADA").json["spot"] == str(PUBLISHES)
    assert max(newest_of) > 1
