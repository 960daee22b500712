"""What the embedded store costs: a publish, until it is seen elsewhere, a follower that waits, and loading."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any

from market_index import LiveIndex, OrderBook, Pair, wire
from market_index_feeds import Store, open_feed, open_store
from market_index_feeds.sqlite import Synchronous
from tests.benchmarks.books import book, books
from tests.benchmarks.figures import Row, bounded, compared, interleaved

ROOT = Path(__file__).resolve().parents[2]


def rows(*, quick: bool) -> Iterator[Row]:
    # Beside the project: what is kept in memory alone, as /tmp may be, is never synced.
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
        there = Path(folder)
        yield from seen_elsewhere(there, 200 if quick else 1_000)
        yield idle(there, 3 if quick else 20)
        yield from writing(there, 5 if quick else 15)
        yield from loading(there, 10_000 if quick else 100_000, 3 if quick else 5)


# A publish, until another process shows it

PUBLISHER = """
import random, sys, time
from market_index_feeds import open_store
from tests.benchmarks.books import book
path, times = sys.argv[1], int(sys.argv[2])
numbers = random.Random(5)
books = [book(numbers, 50) for _ in range(20)]
with open_store(path) as store:
    store.publish(*books)
    input()
    for number in range(1, times + 1):
        one = books[number % 20].apply(spot=str(number))
        time.sleep(numbers.random() * 0.01)
        store.publish(one)
        print(number, time.monotonic_ns(), flush=True)
"""


class Stopwatch:
    """Stands for a live index, and notes when each publish is there for whoever asks."""

    def __init__(self) -> None:
        self.live = LiveIndex()
        self.seen: dict[int, int] = {}

    def update(self, publish: list[OrderBook], retract: Any) -> None:
        self.live.update(publish, retract)
        now = time.monotonic_ns()
        for one in publish:
            if one.spot is not None and one.spot == int(one.spot):
                self.seen[int(one.spot)] = now


def seen_elsewhere(folder: Path, times: int) -> Iterator[Row]:
    path = folder / "seen.db"
    open_store(path).close()
    stopwatch = Stopwatch()
    command = [sys.executable, "-c", PUBLISHER, str(path), str(times)]
    with open_feed(path) as feed:
        feed.start(stopwatch)  # type: ignore[arg-type]  # it does what a feed needs of a live index
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as publisher:
            assert publisher.stdin
            assert publisher.stdout
            publisher.stdin.write("\n")
            publisher.stdin.flush()
            acknowledged = {int(number): int(at) for number, at in map(str.split, publisher.stdout)}
        patience = time.monotonic() + 10
        while len(stopwatch.seen) < times and time.monotonic() < patience:
            time.sleep(0.01)
    # One that is overtaken by the next of its pair before anybody looks is seen with that; here none is.
    after = [max(stopwatch.seen[number] - at, 0) / 1e6 for number, at in acknowledged.items()]
    percentiles = quantiles(after, n=100)
    work = f"from a publish to where another process shows it, {times:,} publishes"
    yield bounded(f"{work}: p50", "ms", [percentiles[49]], 5)
    yield bounded(f"{work}: p99", "ms", [percentiles[98]], 15)


# A follower that has nothing to do

FOLLOWER = """
import sys, time
from market_index import LiveIndex
from market_index_feeds import open_feed
with open_feed(sys.argv[1]) as feed:
    feed.start(LiveIndex())
    time.sleep(0.5)
    for _ in range(int(sys.argv[2])):
        before = time.process_time()
        time.sleep(1)
        print(time.process_time() - before, flush=True)
"""


def idle(folder: Path, seconds: int) -> Row:
    path = folder / "idle.db"
    with open_store(path) as store:
        store.publish(*books(100, 10))
        command = [sys.executable, "-c", FOLLOWER, str(path), str(seconds)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return bounded(
        "following a store in which nothing changes", "% of a core", [*map(float, done.stdout.split())], 2, scale=100
    )


# Writing


def writing(folder: Path, rounds: int) -> Iterator[Row]:
    # Each pair twice, with another book: of one that stands there already SQLite would write next to nothing.
    held = books(100, 50)
    held += [
        OrderBook(one.pair, other.bids, other.asks, other.spot)
        for one, other in zip(held, books(100, 50, seed=7), strict=True)
    ]
    full, normal = "synchronous FULL", "synchronous NORMAL"
    with (
        open_store(folder / "full.db") as store_full,
        open_store(folder / "normal.db", synchronous="normal") as store_normal,
    ):
        contenders = {
            full: publishing(store_full, held),
            normal: publishing(store_normal, held),
            f"bare SQLite, {full}": bare(folder / "bare-full.db", held, "full"),
            f"bare SQLite, {normal}": bare(folder / "bare-normal.db", held, "normal"),
            "append and fdatasync": appending(folder / "appended", held),
        }
        each = interleaved(contenders, rounds, 100)
        work = "publish a book of 50 levels a side, "
        for name, peers in (
            (full, (f"bare SQLite, {full}", "append and fdatasync")),
            (normal, (f"bare SQLite, {normal}", "append and fdatasync")),
        ):
            for peer in peers:
                yield compared(work + name, "µs", each, name, peer, scale=1e6)
        hundred = {
            "100 at once": publishing_batches(store_full, held),
            "bare SQLite": bare_batches(folder / "bare-batch.db", held),
        }
        batches = {name: [one / 100 for one in seconds] for name, seconds in interleaved(hundred, rounds).items()}
        yield compared(f"{work}100 at once, {full}, each", "µs", batches, "100 at once", "bare SQLite", scale=1e6)
        encoding = interleaved({"encode": lambda: [wire.order_book_to_json(one) for one in held]}, rounds)["encode"]
        yield Row("of which encoding it is", sum(encoding) / len(encoding) / len(held) * 1e6, "µs", "")


def publishing(store: Store, held: list[OrderBook]) -> Callable[[], Any]:
    store.publish(*held)
    following = cycle(held)
    return lambda: store.publish(next(following))


def publishing_batches(store: Store, held: list[OrderBook]) -> Callable[[], Any]:
    following = cycle((held[:100], held[100:]))
    return lambda: store.publish(*next(following))


def plain(
    path: Path, held: list[OrderBook], synchronous: Synchronous
) -> tuple[sqlite3.Connection, list[tuple[Any, ...]]]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("CREATE TABLE books (pair TEXT PRIMARY KEY, revision INTEGER, body TEXT)")
    rows = [(str(one.pair), number, wire.order_book_to_json(one).decode()) for number, one in enumerate(held)]
    connection.executemany(UPSERT, rows)
    return connection, rows


UPSERT = (
    "INSERT INTO books VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET revision = excluded.revision, body = excluded.body"
)


def bare(path: Path, held: list[OrderBook], synchronous: Synchronous) -> Callable[[], Any]:
    connection, rows = plain(path, held, synchronous)
    following = cycle(rows)
    numbers = iter(range(10**9))

    def write() -> None:
        pair, _, body = next(following)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(UPSERT, (pair, next(numbers), body))
        connection.execute("COMMIT")

    return write


def bare_batches(path: Path, held: list[OrderBook]) -> Callable[[], Any]:
    connection, rows = plain(path, held, "full")
    following = cycle((rows[:100], rows[100:]))
    numbers = iter(range(10**9))

    def write() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(UPSERT, [(pair, next(numbers), body) for pair, _, body in next(following)])
        connection.execute("COMMIT")

    return write


def appending(path: Path, held: list[OrderBook]) -> Callable[[], Any]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    following = cycle([wire.order_book_to_json(one) + b"\n" for one in held])

    def append() -> None:
        os.write(descriptor, next(following))
        os.fdatasync(descriptor)

    return append


# Loading


def loading(folder: Path, count: int, rounds: int) -> Iterator[Row]:
    path = folder / "load.db"
    numbers = random.Random(3)
    made = [book(numbers, 7) for _ in range(1_000)]
    with open_store(path, synchronous="normal") as store:
        for start in range(0, count, 10_000):
            some = range(start, min(start + 10_000, count))
            store.publish(*(_of(made[number % 1_000], number) for number in some))
    size = path.stat().st_size / count
    contenders = {
        "a feed": lambda: open_feed(path).read(),
        "reading the rows": lambda: read_rows(path),
    }
    each = interleaved(contenders, rounds)
    yield compared(f"load {count:,} rows of {size / 1000:.1f} kB", "s", each, "a feed", "reading the rows")


def _of(one: OrderBook, number: int) -> OrderBook:
    base = one.pair.base
    pair = Pair(type(base)(number.to_bytes(28, "big"), base.asset_name), one.pair.quote)
    return OrderBook(pair, one.bids, one.asks, one.spot)


def read_rows(path: Path) -> Any:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT pair, body FROM books").fetchall()
    finally:
        connection.close()
