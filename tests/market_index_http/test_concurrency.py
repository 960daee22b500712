"""Readers on several connections while thousands of books are published: no response mixes two versions."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from market_index import Freshness, LiveIndex, OrderBook, wire
from market_index_http import create_app
from tests.market_index_http.books import PAIR_LIST, numbered_pair, target
from tests.service import Client, served
from tests.waiting import eventually, frequent_switches

PAIR, OTHER = numbered_pair(1), numbered_pair(2)
PUBLISHES = 3_000


def books(generation: int) -> list[OrderBook]:
    """Return two books in which every number follows from the generation."""
    levels = [(f"{price}e-9", generation) for price in range(generation + 1, generation + 6)]
    return [OrderBook.from_levels(pair, bids=levels, asks=levels, spot=str(generation)) for pair in (PAIR, OTHER)]


@pytest.mark.decision(23)
@frequent_switches()
def test_no_response_is_torn_while_thousands_of_books_are_published():
    live = LiveIndex()
    live.update(books(1), freshness=Freshness("1"))
    base = str(PAIR.base)
    spellings = [base, base.upper()]
    targets = [target(PAIR).replace(base, one) for one in spellings]
    done = Event()
    newest_of = [0] * 4

    def read(port: int, reader: int) -> None:
        client, newest = Client(port), 0
        while not done.is_set():
            asked = newest % 2
            answer = client.request(targets[asked])
            generation = int(answer.json["spot"])
            book = json.loads(wire.order_book_to_json(books(generation)[0]))
            assert answer.json == book | {"base": spellings[asked]}
            assert generation >= newest
            # Decision 23: no response claims another as_of than that of its book.
            assert answer.headers["market-index-as-of"] == str(generation)
            newest_of[reader] = newest = generation
            # Both books are published atomically, so both spots change together.
            one, other = (int(info["last_spot"]) for info in client.request(PAIR_LIST).json["pairs"])
            assert one == other >= newest
        client.close()

    with served(create_app(live)) as service, ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read, service.port, reader) for reader in range(4)]
        try:
            for generation in range(2, PUBLISHES + 1):
                live.update(books(generation), freshness=Freshness(str(generation)))
                if generation == PUBLISHES // 2:
                    eventually(lambda: all(newest_of) or any(reader.done() for reader in readers))
        finally:
            done.set()
        for reader in readers:
            reader.result()
        assert service.request(targets[0]).json["spot"] == str(PUBLISHES)
    assert max(newest_of) > 1
