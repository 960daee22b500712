"""Costs of the embedded store: a publish, its latency to another process, an idle follower, and loading.

Books of 50 levels a side, on the disk of the project. *bare SQLite* upserts prebuilt text without revisions.
*reading the rows* only fetches them; *json.loads* parses their text in memory.
"""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from benchmarks.books import book, books, renamed
from benchmarks.measure import Group, Prepared, Row, alone, compared, interleaved, percentile
from benchmarks.seen import publish_spot, seen_after
from market_index import OrderBook, wire
from market_index_feeds import Store, open_feed, open_store
from market_index_feeds.sqlite import Synchronous

ROOT: Final = Path(__file__).resolve().parents[1]
AT_ONCE: Final = 1_000


def groups(*, quick: bool) -> dict[str, Group]:
    return {
        "seen": in_folder(partial(seen_elsewhere, times=100 if quick else 200, rounds=3 if quick else 9)),
        "idle": in_folder(partial(idle, seconds=3 if quick else 20)),
        "publish": in_folder(partial(publishing_one, quick=quick)),
        "publish_many": in_folder(partial(publishing_many, quick=quick)),
        "load": in_folder(partial(loading, size=10_000 if quick else 100_000, quick=quick)),
    }


def in_folder(group: Callable[[Path], Iterator[Row]]) -> Group:
    def rows() -> Iterator[Row]:
        # Beside the project, because /tmp may be in memory, where nothing is synced.
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
            yield from group(Path(folder))

    return rows


# The latency of a publish to another process


def seen_elsewhere(folder: Path, *, times: int, rounds: int) -> Iterator[Row]:
    held = books(20, 50)
    after = []
    for number in range(rounds):
        path = folder / f"seen{number}.db"
        with open_store(path) as store:
            store.publish(*held)
            # The follower polls every few milliseconds: regular publishes could always have the same phase.
            after.append(seen_after(path, times, partial(publish_spot, store), held, gap=0.01))
    for percent in (50, 99):
        values = [percentile(one, percent) for one in after]
        yield alone(f"from a publish to where another process has it, SQLite: p{percent}", "ms", values)


# An idle follower

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


def idle(folder: Path, seconds: int) -> Iterator[Row]:
    path = folder / "idle.db"
    with open_store(path) as store:
        store.publish(*books(100, 10))
        command = [sys.executable, "-c", FOLLOWER, str(path), str(seconds)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    shares = [float(line) for line in done.stdout.split()]
    yield alone("following a store in which nothing changes", "% of a core", shares, scale=100)


# Writing


def pairs_twice(size: int) -> list[OrderBook]:
    """Return two versions of books, because SQLite writes almost nothing if the text of a row is the same."""
    held = books(size, 50)
    others = zip(held, books(size, 50, seed=7), strict=True)
    return held + [OrderBook(one.pair, other.bids, other.asks, other.spot) for one, other in others]


def publishing_one(folder: Path, *, quick: bool) -> Iterator[Row]:
    held = pairs_twice(100)
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
        }
        each = interleaved(contenders, quick=quick, clock=time.perf_counter)
    for name in (full, normal):
        work = f"publish a book of 50 levels a side, {name}"
        yield compared(work, "µs", each, name, f"bare SQLite, {name}", scale=1e6)


def publishing_many(folder: Path, *, quick: bool) -> Iterator[Row]:
    held = pairs_twice(AT_ONCE)
    with open_store(folder / "full.db") as store:
        contenders = {
            "ours": publishing_batches(store, held),
            "bare SQLite": bare_batches(folder / "bare-batch.db", held),
        }
        each = interleaved(contenders, quick=quick, clock=time.perf_counter, per=AT_ONCE)
    work = f"publish {AT_ONCE:,} books of 50 levels a side in one call, synchronous FULL, each"
    yield alone(work, "µs", each["ours"], scale=1e6)
    yield compared(work, "µs", each, "ours", "bare SQLite", scale=1e6)


def publishing(store: Store, held: list[OrderBook]) -> Callable[[], Any]:
    store.publish(*held)
    following = cycle(held)
    return lambda: store.publish(next(following))


def publishing_batches(store: Store, held: list[OrderBook]) -> Callable[[], Any]:
    following = cycle((held[:AT_ONCE], held[AT_ONCE:]))
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
    following = cycle((rows[:AT_ONCE], rows[AT_ONCE:]))
    numbers = iter(range(10**9))

    def write() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(UPSERT, [(pair, next(numbers), body) for pair, _, body in next(following)])
        connection.execute("COMMIT")

    return write


# Loading


def loading(folder: Path, *, size: int, quick: bool) -> Iterator[Row]:
    path = folder / "load.db"
    numbers = random.Random(3)
    made = [book(numbers, 10) for _ in range(1_000)]
    with open_store(path, synchronous="normal") as store:
        for start in range(0, size, 10_000):
            store.publish(*(renamed(made[number % 1_000], number) for number in range(start, start + 10_000)))
    kilobytes = sum(len(body) for _, body in read_rows(path)) / size / 1e3
    contenders: dict[str, Any] = {
        "a feed": lambda: open_feed(path).read(),
        "reading the rows": lambda: read_rows(path),
        "json.loads": Prepared(lambda: read_rows(path), lambda rows: [json.loads(body) for _, body in rows]),
    }
    each = interleaved(contenders, quick=quick, clock=time.process_time)
    work = f"load {size:,} validated rows of {kilobytes:.1f} kB"
    yield compared(work, "s", each, "a feed", "json.loads")
    yield compared(work, "s", each, "a feed", "reading the rows")


def read_rows(path: Path) -> Any:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT pair, body FROM books").fetchall()
    finally:
        connection.close()
