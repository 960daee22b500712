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
One server of NATS on the same machine, books of 50 levels a side. *The bare client* is nats-py with the same values:
it checks and decodes nothing, and keeps no index. A put is visible when a live index in another process has it; the
bare client's when its watch yields it. *The bare watch* reads a bucket of the same texts into a dict; a replica
validates every book. nats-py at times reports a full bucket as empty: that is retried and counted.

*The rate.* Encoding a book takes 26 µs, deflating it 41, its digest 7; sending it and reading its acknowledgement take
less than in the bare client, which sends four times as many bytes. The lower bound is a bare client that encodes,
deflates and digests each book when it sends it: 0.37 of the rate of the bare client, and 0.59 if it only encodes. In
the same rounds ours reached 0.32, so 0.6 is out of reach. Designs that brought nothing, also in the same rounds:
deflating in one thread while another sends (0.27), encoding while the servers store the books before (0.33), and one
acknowledgement for a call, which the servers store as an atomic batch (0.29). Without deflating the rate was 0.41. It
was 0.54 if books were also encoded while others were stored, and messages formatted without the client library. But
then a book is four times as long on the network and on the disks.

*The latency.* Of 1.54 ms, writing to the socket and the server take 0.51, two switches between threads 0.23, encoding
and deflating 0.16, inflating and validating 0.3, and the update of the index 0.1. Each is two to three times as long as
in a loop, because the processes wait before each put. The lower bound is a bare client that encodes, deflates, inflates
and validates: 1.69 times the latency of the bare client, and 1.4 if it does not deflate. In the same rounds ours was
2.4, so 1.6 is out of reach; without deflating it was 2.25. A queue instead of futures between the two threads of the
reader, and decoding in the thread of its event loop, brought nothing. Running the event loops in the threads of the
publisher and of the follower brought 1.75 instead of 2.16. That is not done: an idle store would answer no ping, the
timeouts of a watch would expire while large books are decoded, and a program could not publish in its own event loop.

*Late joins.* Of 66 µs of processor time for a pair of 1 kB, inflating and validating takes 42, and the client library
most of the rest. With 100,000 pairs, 11 full garbage collections took 3.3 s of 10. *Postponed* is a program that has
raised their threshold, as docs/publish.md says. Feeds do not raise it, because it is that of the process: other
threads, forked processes and `market-index serve` may change it at the same time.
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
    yield compared("books of 6 kB published, 200 a call", "/s", each, OURS, CLIENT, at_least=0.6, headline=True)


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
            last = store.revision
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
