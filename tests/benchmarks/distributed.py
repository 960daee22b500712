"""What the distributed store costs: until a publish is seen, many replicas, their memory, and joining late."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles

import nats
from attrs import frozen

from market_index import OrderBook, Pair, wire
from market_index_feeds import open_store
from market_index_feeds.nats.records import key_of
from tests.benchmarks.books import book
from tests.benchmarks.figures import Row, alone, compared
from tests.nats import Server, served

ROOT = Path(__file__).resolve().parents[2]
MAX_RETRIES = 5


def rows(*, quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
        with served(Path(folder) / "latency") as server:
            yield from latency(server, 200 if quick else 1_000, 1 if quick else 3)
        with served(Path(folder) / "rate") as server:
            yield from rate(server, 2_000 if quick else 10_000)
        with served(Path(folder) / "replicas") as server:
            yield from replicas(server, 3 if quick else 8)
        for count in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
            with served(Path(folder) / f"join{count}") as server:
                yield from joining(server, count, 3)


def elsewhere(*arguments: object, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def spoken(process: subprocess.Popen[str], said: str = "") -> str:
    """Say a line to a process, and return the line that it answers by."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(said + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def ended(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=60)[0]


# A publish, until another process shows it: one at a time, so that nothing waits in a queue

OURS = """
import sys, time
from market_index import LiveIndex
from market_index_feeds import open_feed
seen = {}
class Stopwatch:
    live = LiveIndex()
    def update_from(self, feed, publish, retract, freshness):
        publish = list(publish)
        self.live.update_from(feed, publish, retract, freshness)
        now = time.monotonic_ns()
        for one in publish:
            seen[str(one.spot)] = now
with open_feed(sys.argv[1]) as feed:
    feed.start(Stopwatch())
    input(); print("ready", flush=True)
    input()
    print(" ".join(f"{spot}:{at}" for spot, at in seen.items()), flush=True)
"""

BARE = """
import asyncio, sys, time, threading, nats
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
    await loop.run_in_executor(None, input); print("ready", flush=True)
    await loop.run_in_executor(None, input)
    print(" ".join(f"{spot}:{at}" for spot, at in seen.items()), flush=True)
    task.cancel()
    await client.close()
asyncio.run(main())
"""


def latency(server: Server, times: int, rounds: int) -> Iterator[Row]:
    numbers = random.Random(5)
    held = [book(numbers, 50) for _ in range(20)]
    size = len(wire.order_book_to_json(held[0])) // 1000
    results: dict[str, list[list[float]]] = {"ours": [], "the bare client": []}
    for number in range(rounds):
        url = f"{server.url}/ours{number}"
        with open_store(url) as store:
            store.publish(*held)
            results["ours"].append(
                seen_after(url, OURS, times, lambda one, spot, store=store: store.publish(one.apply(spot=spot)), held)  # type: ignore[misc]  # one of each
            )
        results["the bare client"].append(asyncio.run(bare_latency(server, f"bare{number}", times, held)))
    for name, percentile, at_most in (("p50", 49, 2), ("p99", 98, 2)):
        each = {who: [quantiles(one, n=100)[percentile] for one in all_] for who, all_ in results.items()}
        yield compared(
            f"from a put to where another process shows it, {size} kB, {times:,} times: {name}",
            "ms",
            each,
            "ours",
            "the bare client",
            at_most=at_most,
        )


def seen_after(
    url: str, script: str, times: int, put: Callable[[OrderBook, str], object], held: list[OrderBook]
) -> list[float]:
    follower = elsewhere(url, script=script)
    spoken(follower)
    sent = {}
    for number in range(1, times + 1):
        sent[str(number)] = time.monotonic_ns()
        put(held[number % 20], str(number))
        time.sleep(0.002)
    time.sleep(0.2)
    seen = dict(part.split(":") for part in spoken(follower).split())
    ended(follower)
    return [(int(seen[spot]) - at) / 1e6 for spot, at in sent.items() if spot in seen]


async def bare_latency(server: Server, bucket: str, times: int, held: list[OrderBook]) -> list[float]:
    client = await nats.connect(server.url)
    kv = await client.jetstream().create_key_value(bucket=bucket)
    texts = [wire.order_book_to_json(one) for one in held]
    follower = elsewhere(f"{server.url}/{bucket}", script=BARE)
    await asyncio.to_thread(spoken, follower)
    sent = {}
    for number in range(1, times + 1):
        value = f"{number} ".encode() + texts[number % 20]
        sent[str(number)] = time.monotonic_ns()
        await kv.put(f"key{number % 20}", value)
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.2)
    seen = dict(part.split(":") for part in (await asyncio.to_thread(spoken, follower)).split())
    await asyncio.to_thread(ended, follower)
    await client.close()
    return [(int(seen[spot]) - at) / 1e6 for spot, at in sent.items() if spot in seen]


# How many a second


def rate(server: Server, times: int) -> Iterator[Row]:
    numbers = random.Random(6)
    made = [book(numbers, 50) for _ in range(200)]
    url = f"{server.url}/rate"
    with open_store(url) as store:
        store.publish(*made)

        def ours(some: list[OrderBook]) -> float:
            begun = time.perf_counter()
            for _ in range(times // 200):
                store.publish(*some)
            return times / (time.perf_counter() - begun)

        each: dict[str, list[float]] = {"ours": [], "the bare client": []}
        for _ in range(5):
            each["ours"].append(ours(made))
            each["the bare client"].append(asyncio.run(bare_rate(server, times, made)))
    yield compared("books published a second, 200 a call", "/s", each, "ours", "the bare client")


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


def replicas(server: Server, seconds: int) -> Iterator[Row]:
    """The same publisher with 1, 2, 4 and 8 replicas: what it reaches, and what goes through each of them."""
    numbers = random.Random(7)
    made = [book(numbers, 50) for _ in range(200)]
    url = f"{server.url}/replicas"
    with open_store(url) as store:
        store.publish(*made)
        for count in (1, 2, 4, 8):
            processes = [elsewhere(url, script=REPLICA) for _ in range(count)]
            for process in processes:
                spoken(process)
            before = [int(spoken(process).split()[0]) for process in processes]
            begun, published = time.perf_counter(), 0
            while time.perf_counter() - begun < seconds:
                store.publish(*made[:100])
                published += 100
            taken = time.perf_counter() - begun
            after = [int(spoken(process).split()[0]) for process in processes]
            last = store.revision
            patience = time.monotonic() + 60
            while time.monotonic() < patience:
                reached = [int(spoken(process).split()[1]) for process in processes]
                if min(reached) == last:
                    break
            caught_up = time.perf_counter() - begun - taken
            through = [(one - other) / taken for one, other in zip(after, before, strict=True)]
            for process in processes:
                ended(process)
            who = f"{count} replica{'s' if count > 1 else ''}"
            yield Row(f"{who}, a publisher without pause: it publishes", published / taken, "/s", "")
            yield alone(f"{who}: messages through each", "/s", through)
            yield Row(f"{who}: until all show the last one", caught_up, "s", "")


# Joining late, and how much is held

JOINER = """
import os, sys, time
from pathlib import Path
from market_index import LiveIndex
from market_index_feeds import nats, open_feed
def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
before = held()
begun = time.perf_counter()
live = LiveIndex()
with open_feed(sys.argv[1]) as feed:
    feed.start(live)
    print(time.perf_counter() - begun, held() - before, len(live.current), flush=True)
"""

WATCHER = """
import asyncio, os, sys, time, nats
from pathlib import Path
def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
url, bucket = sys.argv[1].rsplit("/", 1)
async def main():
    before = held()
    begun = time.perf_counter()
    client = await nats.connect(url)
    watcher = await (await client.jetstream().key_value(bucket)).watchall()
    values = {}
    async for entry in watcher:
        if entry is None:
            break
        values[entry.key] = entry.value
    print(time.perf_counter() - begun, held() - before, len(values), flush=True)
    await client.close()
asyncio.run(main())
"""


@frozen
class Joined:
    """What one process needed to join, and how many pairs it found."""

    seconds: float
    megabytes: float
    found: int


def joining(server: Server, count: int, rounds: int) -> Iterator[Row]:
    """Join a bucket of books of about 1 kB; the bare watch reads a bucket of the same texts."""
    ours, bare = f"{server.url}/join", f"{server.url}/barejoin"
    prepare_join(server, ours, count)
    joined: dict[str, list[Joined]] = {"ours": [], "the bare watch": []}
    retries = 0
    for _ in range(rounds):
        joined["ours"].append(complete(join(JOINER, ours), count))
        watched, retried = until_not_empty(lambda: join(WATCHER, bare))
        joined["the bare watch"].append(complete(watched, count))
        retries += retried
    seconds = {name: [one.seconds for one in each] for name, each in joined.items()}
    held = {name: [one.megabytes for one in each] for name, each in joined.items()}
    yield compared(f"join late, {count:,} pairs of 1 kB", "s", seconds, "ours", "the bare watch", at_most=4.5)
    yield compared(f"memory of a replica, {count:,} pairs of 1 kB", "MB", held, "ours", "the bare watch")
    yield Row(f"the bare watch reported {count:,} pairs as none, and was retried", retries, "times", "")


def prepare_join(server: Server, url: str, count: int) -> None:
    numbers = random.Random(8)
    made = [book(numbers, 7) for _ in range(500)]
    with open_store(url, wait=30) as store:
        for start in range(0, count, 5_000):
            store.publish(*(numbered(made, number) for number in range(start, min(start + 5_000, count))))
    asyncio.run(fill(server, "barejoin", [numbered(made, number) for number in range(count)]))


def join(script: str, url: str) -> Joined:
    with elsewhere(url, script=script) as process:
        seconds, megabytes, found = ended(process).split()
    return Joined(float(seconds), float(megabytes), int(found))


def until_not_empty(measure: Callable[[], Joined]) -> tuple[Joined, int]:
    """Return the first result with pairs, and the number of retries before it; at most `MAX_RETRIES`.

    The bare nats-py watch sometimes reports a full bucket as empty.
    """
    for retried in range(MAX_RETRIES + 1):
        joined = measure()
        if joined.found:
            return joined, retried
    raise RuntimeError(f"the bare watch reported a full bucket as empty {MAX_RETRIES + 1} times in a row")


def complete(joined: Joined, count: int) -> Joined:
    if joined.found != count:
        raise RuntimeError(f"joined a bucket of {count:,} pairs and found {joined.found:,}")
    return joined


def numbered(made: list[OrderBook], number: int) -> OrderBook:
    one = made[number % len(made)]
    base = one.pair.base
    pair = Pair(type(base)(number.to_bytes(28, "big"), base.asset_name), one.pair.quote)
    return OrderBook(pair, one.bids, one.asks, one.spot)


async def fill(server: Server, bucket: str, some: list[OrderBook]) -> None:
    client = await nats.connect(server.url)
    stream = client.jetstream(publish_async_max_pending=256)
    await stream.create_key_value(bucket=bucket)
    for one in some:
        await stream.publish_async(f"$KV.{bucket}.{key_of(one.pair)}", wire.order_book_to_json(one))
    await stream.publish_async_completed()
    await client.close()
