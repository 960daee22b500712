"""Costs of an index: publishing and lookups.

A publish replaces one book of an index. *copied dict* copies a dict; *256 shards* copies one of so many dicts;
*immutables.Map* and *rpds.HashTrieMap* are persistent maps without an order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final

import immutables
import rpds

from benchmarks.books import books
from benchmarks.measure import Group, Prepared, Row, alone, compared, interleaved
from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair

SHARDS: Final = 256
PUBLISHED: Final = 10
ASKED: Final = 1_000


def groups(*, quick: bool) -> dict[str, Group]:
    sizes = (100, 10_000) if quick else (100, 10_000, 100_000)
    found: dict[str, Group] = {f"publish_{size}": partial(publishing, size, quick=quick) for size in sizes}
    found["publish_flat"] = partial(publishing_flat, sizes[-1], quick=quick)
    found["lookup"] = partial(looking_up, (100, 10_000, 100_000 if quick else 1_000_000), quick=quick)
    return found


def sharded(held: list[OrderBook]) -> Callable[[OrderBook], Any]:
    filling: list[dict[Pair, OrderBook]] = [{} for _ in range(SHARDS)]
    for one in held:
        filling[hash(one.pair) % SHARDS][one.pair] = one
    current = tuple(filling)

    def change(one: OrderBook) -> Any:
        shard = hash(one.pair) % SHARDS
        return (*current[:shard], current[shard] | {one.pair: one}, *current[shard + 1 :])

    return change


def publishing(size: int, *, quick: bool) -> Iterator[Row]:
    held = books(size, 0)
    live, as_dict, shards = LiveIndex(held), {one.pair: one for one in held}, sharded(held)
    hamt, trie = immutables.Map(as_dict), rpds.HashTrieMap(as_dict)
    contenders: dict[str, Callable[[OrderBook], Any]] = {
        "LiveIndex.publish": live.publish,
        "copied dict": lambda one: as_dict | {one.pair: one},
        f"{SHARDS} shards": shards,
        "immutables.Map": lambda one: hamt.set(one.pair, one),
        "rpds.HashTrieMap": lambda one: trie.insert(one.pair, one),
    }
    prepare = new_books(held)
    works = {name: Prepared(prepare, partial(each, change)) for name, change in contenders.items()}
    seconds = interleaved(works, quick=quick, per=PUBLISHED)
    work = f"publish one book into {size:,} pairs"
    yield alone(work, "µs", seconds["LiveIndex.publish"], scale=1e6)
    for peer in list(contenders)[1:]:
        yield compared(work, "µs", seconds, "LiveIndex.publish", peer, scale=1e6)


def publishing_flat(most: int, *, quick: bool) -> Iterator[Row]:
    small, large = f"publish into {100:,} pairs", f"publish into {most:,} pairs"
    contenders = {}
    for name, size in ((small, 100), (large, most)):
        held = books(size, 0)
        contenders[name] = Prepared(new_books(held), partial(each, LiveIndex(held).publish))
    seconds = interleaved(contenders, quick=quick, per=PUBLISHED)
    yield compared(large, "µs", seconds, large, small, scale=1e6)


def new_books(held: list[OrderBook]) -> Callable[[], list[OrderBook]]:
    """Return a function that makes books with new spot prices for some of the pairs."""
    sample, spots = random.Random(2).sample(held, 50), count(1)
    return lambda: [
        OrderBook(sample[spot % 50].pair, spot=str(spot)) for _, spot in zip(range(PUBLISHED), spots, strict=False)
    ]


def each(change: Callable[[OrderBook], Any], some: list[OrderBook]) -> None:
    for one in some:
        change(one)


def looking_up(sizes: tuple[int, ...], *, quick: bool) -> Iterator[Row]:
    contenders: dict[str, Callable[[], Any]] = {}
    for size in sizes:
        index = MarketIndex(books(size, 0))
        as_dict = dict(index)
        # New pair objects, as in a request.
        asked = [Pair(AssetId.parse(str(one.base)), ADA) for one in random.Random(3).choices(list(index), k=ASKED)]
        contenders[among(size)] = partial(look_up, index.order_book, asked)
        contenders[f"dict of {size:,}"] = partial(look_up, as_dict.__getitem__, asked)
        contenders[f"immutables.Map of {size:,}"] = partial(look_up, immutables.Map(as_dict).__getitem__, asked)
    seconds = interleaved(contenders, quick=quick, per=ASKED)
    for size in sizes:
        yield compared(among(size), "µs", seconds, among(size), f"dict of {size:,}", scale=1e6)
    most, least = among(sizes[-1]), among(sizes[0])
    yield compared(most, "µs", seconds, most, least, scale=1e6)
    for peer in ("dict", "immutables.Map"):
        most, least = f"{peer} of {sizes[-1]:,}", f"{peer} of {sizes[0]:,}"
        yield compared(f"look up a pair in {most}", "µs", seconds, most, least, scale=1e6)


def among(size: int) -> str:
    return f"look up a pair among {size:,}"


def look_up(find: Callable[[Pair], OrderBook], asked: list[Pair]) -> None:
    for one in asked:
        find(one)
