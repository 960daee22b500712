"""Costs of an index: publishing and lookups.

A publish replaces one book of an index. *copied dict* copies a dict; *immutables.Map* is a persistent map without an
order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final

import immutables

from benchmarks.books import books
from benchmarks.measure import Group, Prepared, Row, compared, interleaved
from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair

PUBLISHED: Final = 10
ASKED: Final = 1_000


def groups(*, quick: bool) -> dict[str, Group]:
    sizes = (100, 10_000) if quick else (100, 10_000, 100_000)
    found: dict[str, Group] = {f"publish_{size}": partial(publishing, size, quick=quick) for size in sizes}
    return found | {"lookup": partial(looking_up, (100, 10_000, 100_000 if quick else 1_000_000), quick=quick)}


def publishing(size: int, *, quick: bool) -> Iterator[Row]:
    held = books(size, 0)
    live, as_dict = LiveIndex(held), {one.pair: one for one in held}
    hamt = immutables.Map(as_dict)
    contenders: dict[str, Callable[[OrderBook], Any]] = {
        "LiveIndex.publish": live.publish,
        "copied dict": lambda one: as_dict | {one.pair: one},
        "immutables.Map": lambda one: hamt.set(one.pair, one),
    }
    prepare = new_books(held)
    works = {name: Prepared(prepare, partial(each, change)) for name, change in contenders.items()}
    seconds = interleaved(works, quick=quick, per=PUBLISHED)
    work = f"publish one book into {size:,} pairs"
    for peer in list(contenders)[1:]:
        yield compared(work, "µs", seconds, "LiveIndex.publish", peer, scale=1e6)


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
    seconds = interleaved(contenders, quick=quick, per=ASKED)
    for size in sizes:
        yield compared(among(size), "µs", seconds, among(size), f"dict of {size:,}", scale=1e6)


def among(size: int) -> str:
    return f"look up a pair among {size:,}"


def look_up(find: Callable[[Pair], OrderBook], asked: list[Pair]) -> None:
    for one in asked:
        find(one)
