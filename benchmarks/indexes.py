"""Costs of an index: publishing, lookups, and the pair list after a change."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final

import immutables
import rpds

from benchmarks.books import books
from benchmarks.figures import Prepared, Row, alone, compared, divided, interleaved
from benchmarks.report import Group
from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair, PairInfo
from market_index_http.bodies import Bodies, Body

SHARDS: Final = 256
PUBLISHED: Final = 10
ASKED: Final = 1_000

TITLE: Final = "The index"
ABOUT: Final = f"""
A publish replaces one book of an index. *copied dict* copies a dict; *{SHARDS} shards* copies one of so many dicts;
*immutables.Map* and *rpds.HashTrieMap* are persistent maps without an order. The pair list is made after a publish of a
new spot price; *compressed whole* is `gzip.compress` of the standard library at its fastest level.
"""


def groups(*, quick: bool) -> dict[str, Group]:
    sizes = (100, 10_000) if quick else (100, 10_000, 100_000)
    found: dict[str, Group] = {f"publish_{size}": partial(publishing, size, quick=quick) for size in sizes}
    found["publish_flat"] = partial(publishing_flat, sizes[-1], quick=quick)
    found["lookup"] = partial(looking_up, (100, 10_000, 100_000 if quick else 1_000_000), quick=quick)
    found |= {f"pair_list_{size}": partial(pair_list, size, quick=quick) for size in sizes[1:]}
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
    seconds = divided(interleaved(works, quick=quick), PUBLISHED)
    work = f"publish one book into {size:,} pairs"
    yield alone(work, "µs", seconds["LiveIndex.publish"], scale=1e6, at_most=15)
    for peer in list(contenders)[1:]:
        headline = size == 10_000 and peer == "immutables.Map"
        yield compared(work, "µs", seconds, "LiveIndex.publish", peer, scale=1e6, headline=headline)


def publishing_flat(most: int, *, quick: bool) -> Iterator[Row]:
    small, large = f"publish into {100:,} pairs", f"publish into {most:,} pairs"
    contenders = {}
    for name, size in ((small, 100), (large, most)):
        held = books(size, 0)
        contenders[name] = Prepared(new_books(held), partial(each, LiveIndex(held).publish))
    seconds = divided(interleaved(contenders, quick=quick), PUBLISHED)
    yield compared(large, "µs", seconds, large, small, scale=1e6, at_most=4)


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
    seconds = divided(interleaved(contenders, quick=quick), ASKED)
    for size in sizes:
        yield compared(among(size), "µs", seconds, among(size), f"dict of {size:,}", scale=1e6)
    most, least = among(sizes[-1]), among(sizes[0])
    yield compared(most, "µs", seconds, most, least, scale=1e6, at_most=3, headline=True)
    for peer in ("dict", "immutables.Map"):
        most, least = f"{peer} of {sizes[-1]:,}", f"{peer} of {sizes[0]:,}"
        yield compared(f"look up a pair in {most}", "µs", seconds, most, least, scale=1e6)


def among(size: int) -> str:
    return f"look up a pair among {size:,}"


def look_up(find: Callable[[Pair], OrderBook], asked: list[Pair]) -> None:
    for one in asked:
        find(one)


def pair_list(size: int, *, quick: bool) -> Iterator[Row]:
    held = books(size, 0)
    live, bodies, spots = LiveIndex(held), Bodies(), count(1)
    changed = random.Random(4).sample(held, 10)

    def publish() -> MarketIndex:
        spot = next(spots)
        live.publish(OrderBook(changed[spot % len(changed)].pair, spot=str(spot)))
        return live.current

    def publish_and_encode() -> Any:
        return encode(publish())

    def encode(index: MarketIndex) -> Body:
        return bodies.encode(index, None)

    content = encode(publish()).text
    assert content == dumped(live.current)
    gzipped, whole = compress(publish_and_encode()), compressed(content)
    contenders: dict[str, Any] = {
        "Bodies.encode": Prepared(publish, encode),
        "a copy of its bytes": lambda: bytearray(content),
        "json.dumps": Prepared(publish, dumped),
        "Body": Prepared(publish_and_encode, compress),
        "compressed whole": lambda: compressed(content),
    }
    seconds = interleaved(contenders, quick=quick)
    work = f"pair list of {size:,} after one change"
    yield alone(work, "ms", seconds["Bodies.encode"], scale=1e3, at_most={10_000: 1, 100_000: 10}[size])
    for peer in ("a copy of its bytes", "json.dumps"):
        headline = peer == "json.dumps" and size == 10_000
        yield compared(work, "ms", seconds, "Bodies.encode", peer, scale=1e3, headline=headline)
    work += ", gzip"
    yield compared(work, "ms", seconds, "Body", "compressed whole", scale=1e3, at_most=1 / 2, headline=size == 10_000)
    sizes = {"Body": [len(gzipped) / 1e3], "compressed whole": [len(whole) / 1e3]}
    yield compared(f"{work}: its size", "kB", sizes, "Body", "compressed whole", at_most=1.06)


def compress(body: Body) -> Any:
    """Compress a body that is not compressed yet."""
    body._compress_once()
    return body._gzip


def compressed(content: bytes) -> bytes:
    """Return a content as the standard library compresses it at its fastest level."""
    return gzip.compress(content, 1, mtime=0)


def dumped(index: MarketIndex) -> bytes:
    return json.dumps({"pairs": [entry(one) for one in index.pair_list()]}, separators=(",", ":")).encode()


def entry(one: PairInfo) -> dict[str, str | None]:
    last_spot = None if one.last_spot is None else format(one.last_spot, "f")
    return {"base": str(one.base), "quote": str(one.quote), "last_spot": last_spot}
