"""Costs of the distributed store: the rate of publishes, and many pairs.

One NATS server on the same machine, books of 50 levels a side. *The bare client* is nats-py with the same values: it
checks and decodes nothing. *The bare watch* reads a bucket of the same texts into a dict.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import nats

from benchmarks.books import books, renamed
from benchmarks.measure import ROOT, Group, Row, alone, compared
from market_index import wire
from market_index_feeds import open_store
from tests.nats import Server, served

OURS: Final = "ours"
CLIENT: Final = "the bare client"
WATCH: Final = "the bare watch"


def groups(*, quick: bool) -> dict[str, Group]:
    return {
        "rate": on_server(partial(rate, times=1_000 if quick else 4_000, rounds=7 if quick else 15)),
        "many_pairs": on_server(partial(many_pairs, count=10_000 if quick else 100_000, rounds=3)),
    }


def on_server(group: Callable[[Server], Iterator[Row]]) -> Group:
    def rows() -> Iterator[Row]:
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder, served(Path(folder)) as server:
            yield from group(server)

    return rows


def rate(server: Server, *, times: int, rounds: int) -> Iterator[Row]:
    made = books(200, 50, seed=6)
    texts = [wire.order_book_to_json(one) for one in made]
    each: dict[str, list[float]] = {OURS: [], CLIENT: []}
    with open_store(f"{server.url}/rate") as store:
        store.publish(*made)
        for _ in range(rounds):
            begun = time.perf_counter()
            for _ in range(times // 200):
                store.publish(*made)
            each[OURS].append(times / (time.perf_counter() - begun))
            each[CLIENT].append(times / asyncio.run(publish_bare(server, "barerate", texts * (times // 200), 200)))
    yield compared("books of 6 kB published, 200 a call", "/s", each, OURS, CLIENT)


async def publish_bare(server: Server, bucket: str, texts: list[bytes], keys: int) -> float:
    """Publish texts under so many keys by the bare client, and return the seconds."""
    client = await nats.connect(server.url)
    stream = client.jetstream(publish_async_max_pending=256)
    await stream.create_key_value(bucket=bucket)
    begun = time.perf_counter()
    futures = [
        await stream.publish_async(f"$KV.{bucket}.key{number % keys}", text) for number, text in enumerate(texts)
    ]
    await asyncio.gather(*futures)
    seconds = time.perf_counter() - begun
    await client.close()
    return seconds


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
    asyncio.run(publish_bare(server, "barejoin", [wire.order_book_to_json(one) for one in some], count))
    yield alone(f"replace {count:,} books of 1 kB", "s", replaced)
    seconds: dict[str, list[float]] = {OURS: [], WATCH: []}
    for _ in range(rounds):
        seconds[OURS].append(join(JOINER, ours, count))
        seconds[WATCH].append(join(WATCHER, bare, count))
    yield compared(f"join late, {count:,} pairs of 1 kB, validated", "s", seconds, OURS, WATCH)


def join(script: str, url: str, count: int) -> float:
    """Return the seconds until a new process has all pairs. The bare watch at times finds none, and is tried again."""
    for _ in range(6):
        command = [sys.executable, "-c", script, url]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
        seconds, found = done.stdout.split()
        if int(found) == count:
            return float(seconds)
    raise RuntimeError(f"a reader did not find {count:,} pairs in {url}")
