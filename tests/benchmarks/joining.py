"""A replica that joins a bucket late: its time to load everything, and its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import nats
from attrs import frozen

from market_index import OrderBook, wire
from market_index_feeds import open_store
from market_index_feeds.nats.values import key_of
from tests.benchmarks.books import books, renamed
from tests.benchmarks.figures import Row, compared, retried
from tests.benchmarks.seen import elsewhere, ended
from tests.nats import Server

WATCH: Final = "the bare watch"
OURS: Final = "ours"
POSTPONED: Final = "ours, full garbage collections postponed"

JOINER = """
import os, sys, time
from pathlib import Path
from market_index import LiveIndex
from market_index_feeds import nats, open_feed  # the peer has imported its client, too
def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
before = held()
begun = time.perf_counter()
live = LiveIndex()
with open_feed(sys.argv[1]) as feed:
    feed.start(live)
    print(time.perf_counter() - begun, held() - before, len(live.current), flush=True)
"""

POSTPONING_JOINER = "from market_index_cli.loading import loading" + JOINER.replace(
    "feed.start(live)", "with loading(sys.argv[1]): feed.start(live)"
)

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
    """The cost of one process that joins, and the number of pairs that it loaded."""

    seconds: float
    megabytes: float
    found: int

    def is_empty(self) -> bool:
        return self.found == 0


def rows(server: Server, *, count: int, rounds: int) -> Iterator[Row]:
    """Join a bucket of books of about 1 kB; the bare watch reads a bucket of the same texts."""
    ours, bare = f"{server.url}/join", f"{server.url}/barejoin"
    prepare(server, ours, count)
    joined: dict[str, list[Joined]] = {OURS: [], POSTPONED: [], WATCH: []}
    faults = 0
    for _ in range(rounds):
        joined[OURS].append(complete(join(JOINER, ours), count))
        joined[POSTPONED].append(complete(join(POSTPONING_JOINER, ours), count))
        watched, found = retried(lambda: join(WATCHER, bare), Joined.is_empty, WATCH)
        joined[WATCH].append(complete(watched, count))
        faults += found
    seconds = {name: [one.seconds for one in each] for name, each in joined.items()}
    held = {name: [one.megabytes for one in each] for name, each in joined.items()}
    headline = count == 10_000
    work = f"join late, {count:,} pairs of 1 kB, validated"
    yield compared(work, "s", seconds, OURS, WATCH, at_most=4.5, faults=faults, headline=headline)
    postponed = f"{work}, full garbage collections postponed"
    yield compared(postponed, "s", seconds, POSTPONED, WATCH, at_most=3.6 if count == 100_000 else None)
    yield compared(f"memory of a replica, {count:,} pairs of 1 kB", "MB", held, OURS, WATCH)


def prepare(server: Server, url: str, count: int) -> None:
    made = books(500, 7, seed=8)
    with open_store(url, wait=30) as store:
        for start in range(0, count, 5_000):
            some = range(start, min(start + 5_000, count))
            store.publish(*(renamed(made[number % 500], number) for number in some))
    asyncio.run(fill(server, "barejoin", [renamed(made[number % 500], number) for number in range(count)]))


def join(script: str, url: str) -> Joined:
    with elsewhere("-c", script, url) as process:
        seconds, megabytes, found = ended(process).split()
    return Joined(float(seconds), float(megabytes), int(found))


def complete(joined: Joined, count: int) -> Joined:
    if joined.found != count:
        raise RuntimeError(f"joined a bucket of {count:,} pairs and found {joined.found:,}")
    return joined


async def fill(server: Server, bucket: str, some: list[OrderBook]) -> None:
    client = await nats.connect(server.url)
    stream = client.jetstream(publish_async_max_pending=256)
    await stream.create_key_value(bucket=bucket)
    for one in some:
        await stream.publish_async(f"$KV.{bucket}.{key_of(one.pair)}", wire.order_book_to_json(one))
    await stream.publish_async_completed()
    await client.close()
