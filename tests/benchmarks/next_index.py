"""What it costs to derive the next index from one changed book, beside the other ways to keep one.

Run by `make bench`. Medians of interleaved rounds; the peers hold the same books under the same pairs.
"""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median
from typing import Any

import immutables
import rpds

from market_index import ADA, AssetId, MarketIndex, OrderBook, Pair

ROUNDS = 15
SHARDS = 256


def books(count: int) -> list[OrderBook]:
    numbers = random.Random(1)
    return [OrderBook(Pair(AssetId(numbers.randbytes(28), b"token"), ADA)) for _ in range(count)]


def copied_dict(held: list[OrderBook]) -> tuple[Callable[[OrderBook], Any], Callable[[], Any]]:
    current = {book.pair: book for book in held}
    return lambda book: current | {book.pair: book}, lambda: sorted(current, key=lambda pair: pair.ledger_order)


def sharded_dicts(held: list[OrderBook]) -> tuple[Callable[[OrderBook], Any], Callable[[], Any]]:
    filling: list[dict[Pair, OrderBook]] = [{} for _ in range(SHARDS)]
    for book in held:
        filling[hash(book.pair) % SHARDS][book.pair] = book
    current = tuple(filling)

    def change(book: OrderBook) -> Any:
        shard = hash(book.pair) % SHARDS
        return (*current[:shard], current[shard] | {book.pair: book}, *current[shard + 1 :])

    def walk() -> Any:
        return sorted((pair for shard in current for pair in shard), key=lambda pair: pair.ledger_order)

    return change, walk


def immutables_map(held: list[OrderBook]) -> tuple[Callable[[OrderBook], Any], Callable[[], Any]]:
    current = immutables.Map({book.pair: book for book in held})
    return lambda book: current.set(book.pair, book), lambda: sorted(current, key=lambda pair: pair.ledger_order)


def rpds_map(held: list[OrderBook]) -> tuple[Callable[[OrderBook], Any], Callable[[], Any]]:
    current = rpds.HashTrieMap({book.pair: book for book in held})
    return lambda book: current.insert(book.pair, book), lambda: sorted(current, key=lambda pair: pair.ledger_order)


def market_index(held: list[OrderBook]) -> tuple[Callable[[OrderBook], Any], Callable[[], Any]]:
    current = MarketIndex(held)
    return current.with_books, lambda: list(current)


def timed(work: Callable[[], Any], times: int) -> float:
    begun = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begun) / times


def main() -> None:
    print(f"Python {platform.python_version()}, immutables {version('immutables')}, rpds-py {version('rpds-py')}")
    print(f"medians of {ROUNDS} interleaved rounds\n")
    print(f"{'pairs':>8}  {'kept as':<16}{'one book changed':>18}{'walk in ledger order':>22}")
    for count in (100, 10_000, 100_000):
        held = books(count)
        changed = [OrderBook(book.pair, spot="1") for book in random.Random(2).sample(held, 50)]
        peers = {
            make.__name__: make(held) for make in (market_index, copied_dict, sharded_dicts, immutables_map, rpds_map)
        }
        changes: dict[str, list[float]] = {name: [] for name in peers}
        walks: dict[str, list[float]] = {name: [] for name in peers}
        for _ in range(ROUNDS):
            for name, (change, walk) in peers.items():
                changes[name].append(timed(lambda: [change(book) for book in changed], 2) / len(changed))  # noqa: B023
                walks[name].append(timed(walk, 1))
        for name in peers:
            print(f"{count:>8}  {name:<16}{median(changes[name]) * 1e6:>15.1f} µs{median(walks[name]) * 1e3:>19.2f} ms")


if __name__ == "__main__":
    main()
