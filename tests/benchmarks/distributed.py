"""Costs of the distributed store: the latency of a publish, its rate, and many replicas."""

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

from market_index import OrderBook, wire
from market_index_feeds import open_store
from tests.benchmarks import joining
from tests.benchmarks.books import books
from tests.benchmarks.figures import Row, alone, compared, percentile
from tests.benchmarks.report import Group
from tests.benchmarks.seen import ROOT, asked, elsewhere, ended, publish_spot, seen_after, seen_by
from tests.nats import Server, served

OURS: Final = "ours"
CLIENT: Final = "the bare client"

TITLE: Final = "The distributed store (NATS)"
ABOUT: Final = """
One NATS server on the same machine, books of 50 levels a side. *The bare client* is nats-py with the same values: it
checks and decodes nothing. *The bare watch* reads a bucket of the same texts into a dict. nats-py at times reports a
full bucket as empty: that is retried and counted. *Postponed* loads as the commands do.
"""


def groups(*, quick: bool) -> dict[str, Group]:
    found = {
        "latency": on_server(partial(latency, times=100 if quick else 200, rounds=5 if quick else 15)),
        "rate": on_server(partial(rate, times=1_000 if quick else 4_000, rounds=7 if quick else 15)),
        "replicas": on_server(partial(replicas, seconds=2 if quick else 8)),
    }
    for count in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        found[f"join_{count}"] = on_server(partial(joining.rows, count=count, rounds=3 if count > 10_000 else 5))
    return found


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
    for percent, at_most in ((50, 1.6), (99, 2)):
        each = {who: [percentile(one, percent) for one in all_] for who, all_ in results.items()}
        work = f"from a put of {kilobytes:.0f} kB to where another process has it: p{percent}"
        yield compared(work, "ms", each, OURS, CLIENT, at_most=at_most, headline=percent == 50)


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
    yield compared("books of 6 kB published, 200 a call", "/s", each, OURS, CLIENT, at_least=0.5, headline=True)


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


# Many replicas

REPLICA = """
import sys
from market_index import LiveIndex
from market_index_feeds import open_feed
with open_feed(sys.argv[1]) as feed:
    feed.start(LiveIndex())
    input(); print("ready", flush=True)
    for _ in sys.stdin:
        print(feed.books, feed.revision, flush=True)
"""


def replicas(server: Server, *, seconds: int) -> Iterator[Row]:
    """Measure a publisher with 1, 2, 4 and 8 replicas: its rate, and the rate of each replica."""
    made = books(200, 50, seed=7)
    url = f"{server.url}/replicas"
    with open_store(url) as store:
        store.publish(*made)
        for count in (1, 2, 4, 8):
            processes = [elsewhere("-c", REPLICA, url) for _ in range(count)]
            for process in processes:
                asked(process)
            before = [int(asked(process).split()[0]) for process in processes]
            begun, published = time.perf_counter(), 0
            while time.perf_counter() - begun < seconds:
                store.publish(*made[:100])
                published += 100
            taken = time.perf_counter() - begun
            after = [int(asked(process).split()[0]) for process in processes]
            last = store.position.number
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                reached = [int(asked(process).split()[1]) for process in processes]
                if min(reached) == last:
                    break
            caught_up = time.perf_counter() - begun - taken
            through = [(one - other) / taken for one, other in zip(after, before, strict=True)]
            for process in processes:
                ended(process)
            who = f"{count} replica{'s' if count > 1 else ''}"
            yield alone(f"{who}, a publisher without pause: it publishes", "/s", [published / taken])
            yield alone(f"{who}: messages through each", "/s", through)
            yield alone(f"{who}: until all have the last one", "s", [caught_up])
