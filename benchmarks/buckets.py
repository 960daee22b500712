"""Costs of the distributed store: the latency of a publish, its rate, and many replicas.

One NATS server on the same machine, books of 50 levels a side. *The bare client* is nats-py with the same values: it
checks and decodes nothing. *The bare watch* reads a bucket of the same texts into a dict.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import nats

from benchmarks.books import books, renamed
from benchmarks.measure import Group, Row, alone, compared, in_turn, percentile
from benchmarks.seen import ROOT, asked, elsewhere, ended, publish_spot, seen_after, seen_by
from market_index import OrderBook, wire
from market_index_feeds import open_store
from tests.nats import Server, served

OURS: Final = "ours"
CLIENT: Final = "the bare client"
WATCH: Final = "the bare watch"


def groups(*, quick: bool) -> dict[str, Group]:
    return {
        "latency": on_server(partial(latency, times=100 if quick else 200, rounds=5 if quick else 15)),
        "rate": on_server(partial(rate, times=1_000 if quick else 4_000, rounds=7 if quick else 15)),
        "many_pairs": on_server(partial(many_pairs, count=10_000 if quick else 100_000, rounds=3)),
    }


def on_server(group: Callable[[Server], Iterator[Row]]) -> Group:
    def rows() -> Iterator[Row]:
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder, served(Path(folder)) as server:
            yield from group(server)

    return rows


# The latency of a publish to another process: one publish at a time, so that none waits in a queue

BARE = """
import asyncio, sys, time, nats
url, bucket = sys.argv[1].rsplit("/", 1)
seen = {}
async def main():
    client = await nats.connect(url)
    watcher = await (await client.jetstream().key_value(bucket)).watchall()
    async def follow():
        async for entry in watcher:
            if entry is not None:
                seen[entry.value[:40].partition(b" ")[0].decode()] = time.monotonic_ns()
    task = asyncio.create_task(follow())
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(" ".join(f"{spot}:{at}" for spot, at in seen.items()), flush=True)
    task.cancel()
    await client.close()
asyncio.run(main())
"""


def latency(server: Server, *, times: int, rounds: int) -> Iterator[Row]:
    held = books(20, 50, seed=5)
    kilobytes = len(wire.order_book_to_json(held[0])) / 1e3
    results: dict[str, list[list[float]]] = {OURS: [], CLIENT: []}
    for number in range(rounds):
        url = f"{server.url}/ours{number}"
        with open_store(url) as store:
            store.publish(*held)
            results[OURS].append(seen_after(url, times, partial(publish_spot, store), held, gap=0.004))
        results[CLIENT].append(asyncio.run(bare_latency(server, f"bare{number}", times, held)))
    for percent in (50, 99):
        each = {who: [percentile(one, percent) for one in all_] for who, all_ in results.items()}
        work = f"from a put of {kilobytes:.0f} kB to where another process has it: p{percent}"
        yield compared(work, "ms", each, OURS, CLIENT)


async def bare_latency(server: Server, bucket: str, times: int, held: list[OrderBook]) -> list[float]:
    client = await nats.connect(server.url)
    kv = await client.jetstream().create_key_value(bucket=bucket)
    texts = [wire.order_book_to_json(one) for one in held]
    follower = elsewhere("-c", BARE, f"{server.url}/{bucket}")
    await asyncio.to_thread(asked, follower)
    numbers = random.Random(5)
    sent = {}
    for number in range(1, times + 1):
        value = f"{number} ".encode() + texts[number % 20]
        await asyncio.sleep(numbers.random() * 0.004)
        sent[str(number)] = time.monotonic_ns()
        await kv.put(f"key{number % 20}", value)
    after = await asyncio.to_thread(seen_by, follower, sent)
    await asyncio.to_thread(ended, follower)
    await client.close()
    return after


# How many per second


def rate(server: Server, *, times: int, rounds: int) -> Iterator[Row]:
    made = books(200, 50, seed=6)
    each: dict[str, list[float]] = {OURS: [], CLIENT: []}
    with open_store(f"{server.url}/rate") as store:
        store.publish(*made)
        for _ in range(rounds):
            begun = time.perf_counter()
            for _ in range(times // 200):
                store.publish(*made)
            each[OURS].append(times / (time.perf_counter() - begun))
            each[CLIENT].append(asyncio.run(bare_rate(server, times, made)))
    yield compared("books of 6 kB published, 200 a call", "/s", each, OURS, CLIENT)


async def bare_rate(server: Server, times: int, made: list[OrderBook]) -> float:
    client = await nats.connect(server.url)
    stream = client.jetstream(publish_async_max_pending=256)
    await stream.create_key_value(bucket="barerate")
    texts = [wire.order_book_to_json(one) for one in made]
    begun = time.perf_counter()
    futures = [await stream.publish_async(f"$KV.barerate.key{n % 200}", texts[n % 200]) for n in range(times)]
    await asyncio.gather(*futures)
    taken = time.perf_counter() - begun
    await client.close()
    return times / taken


# Many pairs

JOINER = """
import sys, time
from market_index import LiveIndex
from market_index_feeds import nats, open_feed  # imported before the clock starts, as the peer imports its client
begun = time.perf_counter()
live = LiveIndex()
with open_feed(sys.argv[1]) as feed:
    feed.start(live)
    print(time.perf_counter() - begun, len(live.current), flush=True)
"""

WATCHER = """
import asyncio, sys, time, nats
url, bucket = sys.argv[1].rsplit("/", 1)
async def main():
    begun = time.perf_counter()
    client = await nats.connect(url)
    watcher = await (await client.jetstream().key_value(bucket)).watchall()
    values = {}
    async for entry in watcher:
        if entry is None:
            break
        values[entry.key] = entry.value
    print(time.perf_counter() - begun, len(values), flush=True)
    await client.close()
asyncio.run(main())
"""


def many_pairs(server: Server, *, count: int, rounds: int) -> Iterator[Row]:
    """Replace all books of a bucket, and join it late; the bare watch reads a bucket of the same texts."""
    made = books(500, 7, seed=8)
    some = [renamed(made[number % 500], number) for number in range(count)]
    ours, bare = f"{server.url}/join", f"{server.url}/barejoin"
    replaced = []
    with open_store(ours, wait=30) as store:
        for number in range(rounds):
            following = [one.apply(spot=str(number + 1)) for one in some]
            begun = time.perf_counter()
            store.replace(following)
            replaced.append(time.perf_counter() - begun)
    asyncio.run(fill(server, "barejoin", some))
    yield alone(f"replace {count:,} books of 1 kB", "s", replaced)
    seconds = in_turn({OURS: lambda: join(JOINER, ours, count), WATCH: lambda: join(WATCHER, bare, count)}, rounds)
    yield compared(f"join late, {count:,} pairs of 1 kB, validated", "s", seconds, OURS, WATCH)


def join(script: str, url: str, count: int) -> float:
    """Return the seconds until a new process has all pairs. The bare watch at times finds none, and is tried again."""
    for _ in range(6):
        with elsewhere("-c", script, url) as process:
            seconds, found = ended(process).split()
        if int(found) == count:
            return float(seconds)
    raise RuntimeError(f"a reader did not find {count:,} pairs in {url}")


async def fill(server: Server, bucket: str, some: list[OrderBook]) -> None:
    client = await nats.connect(server.url)
    stream = client.jetstream(publish_async_max_pending=256)
    await stream.create_key_value(bucket=bucket)
    for number, one in enumerate(some):
        await stream.publish_async(f"$KV.{bucket}.key{number}", wire.order_book_to_json(one))
    await stream.publish_async_completed()
    await client.close()
