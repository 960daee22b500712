"""Readers on many connections while ten thousand books are published: no answer is a mix of two books."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index_http import create_app
from tests.service import Client, served

PAIR = Pair(AssetId(b"\x01" * 28, b"torn?"), ADA)
OTHER = Pair(AssetId(b"\x02" * 28, b"torn?"), ADA)
PUBLISHES = 10_000
LEVELS = 5


def book(pair: Pair, generation: int) -> OrderBook:
    """A book in which every number tells the generation."""
    prices = range(generation + 1, generation + 1 + LEVELS)
    return OrderBook.from_levels(
        pair,
        bids=[(f"0.{price:09}", generation) for price in prices],
        asks=[(f"1.{price:09}", generation) for price in prices],
        spot=str(generation),
    )


def test_no_answer_is_torn_while_ten_thousand_books_are_published():
    live = LiveIndex([book(PAIR, 1), book(OTHER, 1)])
    done = Event()

    def read(port: int) -> tuple[int, int]:
        client, answers, newest = Client(port), 0, 0
        while not done.is_set():
            answer = client.ask(f"/trading-view/order-book?base={PAIR.base}&quote=ADA").json
            generation = int(answer["spot"])
            assert {level["accumulated_liquidity"] for side in ("bids", "asks") for level in answer[side]} == {
                generation
            }
            assert [level["price"] for level in answer["asks"]] == [
                f"1.{price:09}".rstrip("0") for price in range(generation + 1, generation + 1 + LEVELS)
            ]
            assert generation >= newest
            newest = generation
            listed = client.ask("/trading-view/pair-list").json["pairs"]
            # Both books are published at once, so both spots move together.
            assert listed[0]["last_spot"] == listed[1]["last_spot"]
            assert int(listed[0]["last_spot"]) >= newest
            answers += 2
        client.close()
        return answers, newest

    with served(create_app(live)) as service, ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read, service.port) for _ in range(4)]
        for generation in range(2, PUBLISHES + 1):
            live.publish(book(PAIR, generation), book(OTHER, generation))
        done.set()
        results = [reader.result() for reader in readers]
        assert service.order_book(str(PAIR.base), "ADA").json["spot"] == str(PUBLISHES)
    assert all(answers > 0 for answers, _ in results)
    assert max(newest for _, newest in results) > 1
