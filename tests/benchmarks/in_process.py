"""What the domain costs, without a wire: ours beside what a user would take instead."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import immutables
import msgspec
import order_book as order_book_extension
import rpds
from pydantic import BaseModel
from sortedcontainers import SortedDict

from market_index import ADA, AssetId, LiveIndex, MarketIndex, Order, OrderBook, Pair, PairInfo, Side, wire
from market_index_http.bodies import Bodies
from tests.benchmarks.books import book, books, price
from tests.benchmarks.figures import Row, bounded, compared, interleaved

SHARDS = 256


def rows(*, quick: bool) -> Iterator[Row]:
    rounds = 5 if quick else 15
    yield from publishing(rounds, quick=quick)
    yield from looking_up(rounds, 100_000 if quick else 1_000_000)
    yield from pair_list(rounds, quick=quick)
    yield from reading(rounds)
    yield from writing(rounds)
    yield from applying(rounds)
    yield from gathering(rounds)
    yield from memory()
    yield from importing(rounds)


# The index


def sharded(held: list[OrderBook]) -> Callable[[OrderBook], Any]:
    filling: list[dict[Pair, OrderBook]] = [{} for _ in range(SHARDS)]
    for one in held:
        filling[hash(one.pair) % SHARDS][one.pair] = one
    current = tuple(filling)

    def change(one: OrderBook) -> Any:
        shard = hash(one.pair) % SHARDS
        return (*current[:shard], current[shard] | {one.pair: one}, *current[shard + 1 :])

    return change


def publishing(rounds: int, *, quick: bool) -> Iterator[Row]:
    costs: dict[int, float] = {}
    for count in (100, 10_000) if quick else (100, 10_000, 100_000):
        seconds = publishing_into(count, rounds)
        costs[count] = median(seconds["LiveIndex.publish"])
        work = f"publish one book into {count:,} pairs"
        yield bounded(work, "µs", seconds["LiveIndex.publish"], 15, scale=1e6)
        for peer in ("copied dict", "256 shards", "immutables.Map", "rpds.HashTrieMap"):
            yield compared(work, "µs", seconds, "LiveIndex.publish", peer, scale=1e6)
    yield flat("publish: the largest index against 100 pairs", costs, 4)


def publishing_into(count: int, rounds: int) -> dict[str, list[float]]:
    held = books(count, 0)
    live, as_dict, shards = LiveIndex(held), {one.pair: one for one in held}, sharded(held)
    hamt, trie = immutables.Map(as_dict), rpds.HashTrieMap(as_dict)
    sample, spots = random.Random(2).sample(held, 50), iter(range(1, 10**9))

    def each(change: Callable[[OrderBook], Any]) -> None:
        spot = str(next(spots))
        for one in sample:
            change(OrderBook(one.pair, spot=spot))

    contenders: dict[str, Callable[[OrderBook], Any]] = {
        "a book alone": id,
        "LiveIndex.publish": live.publish,
        "copied dict": lambda one: as_dict | {one.pair: one},
        "256 shards": shards,
        "immutables.Map": lambda one: hamt.set(one.pair, one),
        "rpds.HashTrieMap": lambda one: trie.insert(one.pair, one),
    }
    seconds = interleaved({name: partial(each, change) for name, change in contenders.items()}, rounds)
    # What is published has to be made first: that is taken off.
    made = seconds.pop("a book alone")
    return {
        name: [max(one - less, 1e-9) / len(sample) for one, less in zip(times, made, strict=True)]
        for name, times in seconds.items()
    }


def looking_up(rounds: int, most: int) -> Iterator[Row]:
    costs: dict[int, float] = {}
    for count in (100, 10_000, most):
        seconds = looking_up_in(count, rounds)
        costs[count] = median(seconds["MarketIndex"])
        yield compared(f"look up a pair in {count:,}", "µs", seconds, "MarketIndex", "dict", scale=1e6)
    yield flat(f"look up: {most:,} pairs against 100", costs, 3)


def looking_up_in(count: int, rounds: int) -> dict[str, list[float]]:
    index = MarketIndex(books(count, 0))
    as_dict = dict(index)
    # Pairs of their own, as a request makes them.
    asked = [Pair(AssetId.parse(str(one.base)), ADA) for one in random.Random(3).choices(list(index), k=1_000)]
    contenders = {
        "MarketIndex": lambda: [index.order_book(one) for one in asked],
        "dict": lambda: [as_dict[one] for one in asked],
    }
    return {name: [one / len(asked) for one in times] for name, times in interleaved(contenders, rounds).items()}


def flat(work: str, costs: dict[int, float], at_most: float) -> Row:
    ratio = costs[max(costs)] / costs[min(costs)]
    return Row(work, ratio, "times", "", goal=f"at most {at_most:g} times", reached=ratio <= at_most)


def pair_list(rounds: int, *, quick: bool) -> Iterator[Row]:
    for count, most in ((10_000, 0.15),) if quick else ((10_000, 0.15), (100_000, 2)):
        seconds = pair_list_of(count, rounds)
        work = f"pair list of {count:,} after one change"
        yield bounded(work, "ms", seconds["Bodies.pair_list"], most, scale=1e3)
        for peer in ("a copy of its bytes", "json.dumps"):
            yield compared(work, "ms", seconds, "Bodies.pair_list", peer, scale=1e3)


def pair_list_of(count: int, rounds: int) -> dict[str, list[float]]:
    held = books(count, 0)
    live, bodies, spots = LiveIndex(held), Bodies(), iter(range(1, 10**9))
    changed = random.Random(4).sample(held, 10)

    def publish() -> None:
        number = next(spots)
        live.publish(OrderBook(changed[number % len(changed)].pair, spot=str(number)))

    def after_a_change() -> bytes:
        publish()
        return bodies.pair_list(live.current).content

    def anew() -> bytes:
        return json.dumps({"pairs": [entry(one) for one in live.current.pair_list()]}, separators=(",", ":")).encode()

    def entry(one: PairInfo) -> dict[str, str | None]:
        last_spot = None if one.last_spot is None else format(one.last_spot, "f")
        return {"base": str(one.base), "quote": str(one.quote), "last_spot": last_spot}

    content = after_a_change()
    assert content == anew()
    contenders = {
        "publish": publish,
        "Bodies.pair_list": after_a_change,
        "a copy of its bytes": lambda: bytearray(content),
        "json.dumps": anew,
    }
    seconds = interleaved(contenders, rounds, 5)
    published = seconds.pop("publish")
    seconds["Bodies.pair_list"] = [one - less for one, less in zip(seconds["Bodies.pair_list"], published, strict=True)]
    return seconds


# The wire


@attrs.frozen
class TypedLevel:
    price: Decimal
    accumulated_liquidity: int


@attrs.frozen
class TypedBook:
    base: str
    quote: str
    spot: Decimal | None
    bids: tuple[TypedLevel, ...]
    asks: tuple[TypedLevel, ...]


class StructLevel(msgspec.Struct):
    price: Decimal
    accumulated_liquidity: int


class StructBook(msgspec.Struct):
    base: str
    quote: str
    spot: Decimal | None
    bids: list[StructLevel]
    asks: list[StructLevel]


class ModelLevel(BaseModel):
    price: Decimal
    accumulated_liquidity: int


class ModelBook(BaseModel):
    base: str
    quote: str
    spot: Decimal | None
    bids: list[ModelLevel]
    asks: list[ModelLevel]


def reading(rounds: int) -> Iterator[Row]:
    one = book(random.Random(5), 500)
    text = wire.order_book_to_json(one)
    decoder = msgspec.json.Decoder(TypedBook)

    def looked_at() -> Any:
        read = wire.order_book_from_json(text)
        return read.bids, read.asks

    assert wire.order_book_from_json(text) == one
    assert [level.price for level in decoder.decode(text).bids] == [level.price for level in one.bids]
    assert [level.price for level in ModelBook.model_validate_json(text).asks] == [level.price for level in one.asks]
    seconds = interleaved(
        {
            "order_book_from_json": lambda: wire.order_book_from_json(text),
            "and its levels looked at": looked_at,
            "msgspec, typed, unchecked": lambda: decoder.decode(text),
            "pydantic, unchecked": lambda: ModelBook.model_validate_json(text),
            "json.loads, nothing else": lambda: json.loads(text),
        },
        rounds,
        10,
    )
    work = "read a book of 500 levels a side"
    yield compared(work, "ms", seconds, "order_book_from_json", "msgspec, typed, unchecked", scale=1e3, at_most=2.5)
    yield compared(work, "ms", seconds, "order_book_from_json", "pydantic, unchecked", scale=1e3, at_most=1)
    yield compared(work, "ms", seconds, "order_book_from_json", "json.loads, nothing else", scale=1e3)
    work += " and look at its levels"
    yield compared(work, "ms", seconds, "and its levels looked at", "msgspec, typed, unchecked", scale=1e3)
    yield compared(work, "ms", seconds, "and its levels looked at", "pydantic, unchecked", scale=1e3)


def writing(rounds: int) -> Iterator[Row]:
    one = book(random.Random(6), 500)
    text = wire.order_book_to_json(one)
    struct, model = msgspec.json.decode(text, type=StructBook), ModelBook.model_validate_json(text)
    assert msgspec.json.encode(struct) == model.model_dump_json().encode() == text

    def anew() -> bytes:
        for chunk in (*one.bids.chunks, *one.asks.chunks):
            chunk.encoded = None
        return wire.order_book_to_json(one)

    seconds = interleaved(
        {
            "order_book_to_json": anew,
            "msgspec": lambda: msgspec.json.encode(struct),
            "pydantic": model.model_dump_json,
        },
        rounds,
        10,
    )
    for peer in ("msgspec", "pydantic"):
        yield compared("write a book of 500 levels a side", "ms", seconds, "order_book_to_json", peer, scale=1e3)
    yield from writing_after_a_change(rounds)


def writing_after_a_change(rounds: int) -> Iterator[Row]:
    deep = book(random.Random(6), 5_000)
    wire.encoded_order_book(deep)
    # Each is encoded once only, since its result is cached.
    changed = iter([deep.apply(bids=[change]) for change in changes(deep, 20 * rounds + 1)])

    def whole() -> bytes:
        for chunk in (*deep.bids.chunks, *deep.asks.chunks):
            chunk.encoded = None
        return wire.text_of(wire.encoded_order_book(deep))

    contenders = {
        "after a change": lambda: wire.text_of(wire.encoded_order_book(next(changed))),
        "encoding all of it": whole,
    }
    seconds = interleaved(contenders, rounds, 20)
    work = "write a book of 5,000 levels a side after one change"
    yield compared(work, "ms", seconds, "after a change", "encoding all of it", scale=1e3, at_most=1 / 15)


# The book


def changes(one: OrderBook, count: int) -> list[tuple[str, int]]:
    """A stream of bids: half of them new amounts, a quarter removals, a quarter new prices; the depth hardly moves."""
    numbers = random.Random(7)
    standing = [str(level.price) for level in one.bids]
    depth = len(standing)
    stream: list[tuple[str, int]] = []
    while len(stream) < count:
        kind, at = numbers.random(), numbers.randrange(len(standing))
        if kind < 0.5:
            stream.append((standing[at], numbers.randrange(1, 10**12)))
        elif kind < 0.75 and len(standing) > 0.9 * depth:
            standing[at], standing[-1] = standing[-1], standing[at]
            stream.append((standing.pop(), 0))
        elif len(standing) < 1.1 * depth:
            standing.append(price(numbers.randrange(10**5, 10**8)))
            stream.append((standing[-1], numbers.randrange(1, 10**12)))
    # Fresh texts: nothing of them is known from the round before.
    return [("".join(text), amount) for text, amount in stream]


def applying(rounds: int) -> Iterator[Row]:
    for levels in (50, 500, 5_000):
        seconds = applying_to(levels, rounds)
        work = f"one change, then the top 20, in {levels:,} levels"
        goal = 1.0 if levels <= 500 else None
        yield compared(work, "µs", seconds, "apply, bids[:20]", "sortedcontainers", scale=1e6, at_most=goal)
        yield compared(work, "µs", seconds, "apply, bids[:20]", "order-book (C)", scale=1e6)
    one = book(random.Random(8), 5_000).apply()
    stream = changes(one, 1_000)
    batches = [stream[start : start + 100] for start in range(0, len(stream), 100)]
    took = interleaved({"apply": lambda: [one.apply(bids=batch) for batch in batches]}, rounds)["apply"]
    yield bounded("100 changes at once in 5,000 levels", "µs", took, 200, scale=1e6 / len(batches))


def applying_to(levels: int, rounds: int) -> dict[str, list[float]]:
    one = book(random.Random(8), levels)
    stream = changes(one, 1_000)

    def with_apply() -> Any:
        current, top = one, one.bids[:20]
        for change in stream:
            current = current.apply(bids=(change,))
            top = current.bids[:20]
        return [(level.price, level.accumulated_liquidity) for level in top]

    def with_sorted_dict() -> Any:
        current = SortedDict({level.price: level.accumulated_liquidity for level in one.bids})
        top: Any = []
        for text, amount in stream:
            at = Decimal(text)
            if amount:
                current[at] = amount
            else:
                current.pop(at, None)
            top = current.items()[-20:]
        return top[::-1]

    def with_extension() -> Any:
        current = order_book_extension.OrderBook()
        for level in one.bids:
            current.bids[level.price] = level.accumulated_liquidity
        top: Any = []
        for text, amount in stream:
            at = Decimal(text)
            if amount:
                current.bids[at] = amount
            elif at in current.bids:
                del current.bids[at]
            top = [current.bids.index(number) for number in range(min(20, len(current.bids)))]
        return top

    assert with_apply() == with_sorted_dict() == with_extension()
    contenders = {
        "apply, bids[:20]": with_apply,
        "sortedcontainers": with_sorted_dict,
        "order-book (C)": with_extension,
    }
    return {name: [one / len(stream) for one in times] for name, times in interleaved(contenders, rounds).items()}


def gathering(rounds: int) -> Iterator[Row]:
    numbers = random.Random(9)
    prices = [price(number) for number in numbers.sample(range(10**6, 10**8), 500)]
    of = book(numbers, 0).pair
    orders = [
        Order(of, Side.BID if at < 250 else Side.ASK, prices[at], numbers.randrange(1, 10**9))
        for at in (numbers.randrange(500) for _ in range(100_000))
    ]

    def with_dicts() -> Any:
        bids: dict[Decimal, int] = {}
        asks: dict[Decimal, int] = {}
        for order in orders:
            totals = bids if order.side is Side.BID else asks
            at: Any = order.price
            totals[at] = totals.get(at, 0) + order.amount
        return sorted(bids.items(), reverse=True), sorted(asks.items())

    gathered = OrderBook.from_orders(of, orders)
    assert with_dicts()[1] == [(level.price, level.accumulated_liquidity) for level in gathered.asks]
    contenders = {"from_orders": lambda: OrderBook.from_orders(of, orders), "dict and sort": with_dicts}
    seconds = interleaved(contenders, max(rounds // 3, 3))
    work = "gather 100,000 orders into 500 levels"
    yield compared(work, "ms", seconds, "from_orders", "dict and sort", scale=1e3, at_most=2)


# What a process takes

SERVED = """
import asyncio, gc, sys
from market_index import LiveIndex, wire
from market_index_http import create_app

def resident():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))

async def nothing(message):
    pass

async def serve(live):
    app = create_app(live)
    for pair in live.current:
        query = f"base={pair.base}&quote={pair.quote}".encode()
        await app({"type": "http", "method": "GET", "path": "/trading-view/order-book", "root_path": "",
                   "query_string": query, "headers": []}, None, nothing)
    return app

before = resident()
with open(sys.argv[1], "rb") as lines:
    live = LiveIndex(map(wire.order_book_from_json, lines))
app = asyncio.run(serve(live))
print(resident() - before)
"""


def memory() -> Iterator[Row]:
    lines = [wire.order_book_to_json(one) for one in books(10_000, 20)]
    size = sum(map(len, lines))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "books.ndjson")
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        done = subprocess.run([sys.executable, "-c", SERVED, str(path)], capture_output=True, text=True, check=True)
    taken = int(done.stdout)
    ratio = taken / size
    yield Row(
        "memory of 10,000 pairs of 20 levels a side, each served once",
        taken / 2**20,
        "MiB",
        "their JSON",
        size / 2**20,
        ratio,
        goal="at most 4",
        reached=ratio <= 4,
    )


def importing(rounds: int) -> Iterator[Row]:
    def imported(statement: str) -> float:
        script = f"import time; begun = time.perf_counter()\n{statement}\nprint(time.perf_counter() - begun)"
        return float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)

    statements = {"import market_index": "import market_index", "import attrs": "import attrs"}
    seconds: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(max(rounds, 7)):
        for name, statement in statements.items():
            seconds[name].append(imported(statement))
    yield compared("import", "ms", seconds, "import market_index", "import attrs", scale=1e3, at_most=1.6)
