"""Streams of changes to the bids of a book."""

from __future__ import annotations

import random

from benchmarks.books import price
from market_index import OrderBook


def changes(one: OrderBook, count: int) -> list[tuple[str, int]]:
    """Return changes of bids: half new amounts, a quarter removals, a quarter new prices; the depth hardly changes."""
    numbers = random.Random(7)
    prices = [str(level.price) for level in one.bids]
    depth = len(prices)
    stream: list[tuple[str, int]] = []
    while len(stream) < count:
        kind, at = numbers.random(), numbers.randrange(len(prices))
        if kind < 0.5:
            stream.append((prices[at], numbers.randrange(1, 10**12)))
        elif kind < 0.75 and len(prices) > 0.9 * depth:
            prices[at], prices[-1] = prices[-1], prices[at]
            stream.append((prices.pop(), 0))
        elif len(prices) < 1.1 * depth:
            prices.append(price(numbers.randrange(10**5, 10**8)))
            stream.append((prices[-1], numbers.randrange(1, 10**12)))
    # New texts, so that nothing is cached for them.
    return [("".join(text), amount) for text, amount in stream]
