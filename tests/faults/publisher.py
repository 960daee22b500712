"""A publisher program, to be killed by tests. It prints the number of each acknowledged generation.

A generation is one change of several books, whose spot price is its number.
"""

from __future__ import annotations

import random
import sys

from market_index import OrderBook
from market_index_feeds import open_store
from tests.market_index_feeds.made_up import pair

PAIRS = 5


def bid_prices(generation: int) -> range:
    """Return the bid prices of each book of a generation, lowest first."""
    return range(1, random.Random(generation).randrange(400) + 1)


def books(generation: int, pairs: int = PAIRS) -> list[OrderBook]:
    bids = [(str(price), generation) for price in bid_prices(generation)]
    return [OrderBook.from_levels(pair(number), bids, spot=str(generation)) for number in range(pairs)]


def main() -> None:
    path, generation = sys.argv[1], int(sys.argv[2])
    with open_store(path) as store:
        while True:
            if generation % 7 == 0:
                store.replace(books(generation))
            else:
                store.publish(*books(generation))
            print(generation, flush=True)
            generation += 1


if __name__ == "__main__":
    main()
