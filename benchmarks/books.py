"""The books of all contenders: generated from a seed, with the sizes and digits of books on exchanges."""

from __future__ import annotations

import random
import string

from market_index import ADA, AssetId, OrderBook, Pair


def pair(numbers: random.Random) -> Pair:
    """Return the pair of a token with a short name, as most have, priced in ADA."""
    name = "".join(numbers.choices(string.ascii_uppercase, k=numbers.randrange(3, 12)))
    return Pair(AssetId(numbers.randbytes(28), name.encode()), ADA)


def price(number: int) -> str:
    return f"0.{number:09}".rstrip("0")


def book(numbers: random.Random, levels: int, of: Pair | None = None) -> OrderBook:
    """Return a book of `levels` levels a side, with a spot price between them."""
    prices = sorted(numbers.sample(range(10**6, 10**8), 2 * levels + 1))
    return OrderBook.from_levels(
        of or pair(numbers),
        bids=[(price(number), numbers.randrange(10**6, 10**12)) for number in prices[:levels]],
        asks=[(price(number), numbers.randrange(10**6, 10**12)) for number in prices[levels + 1 :]],
        spot=price(prices[levels]),
    )


def books(count: int, levels: int, seed: int = 1) -> list[OrderBook]:
    numbers = random.Random(seed)
    return [book(numbers, levels) for _ in range(count)]


def order_book_path(one: OrderBook) -> str:
    """Return the target of the order-book endpoint."""
    return f"/trading-view/order-book?base={one.pair.base}&quote={one.pair.quote}"


def renamed(one: OrderBook, number: int) -> OrderBook:
    """Return the same book for the pair of this number."""
    base = one.pair.base
    return OrderBook(
        Pair(AssetId(number.to_bytes(28, "big"), base.asset_name), one.pair.quote), one.bids, one.asks, one.spot
    )
