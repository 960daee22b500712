"""Costs of the embedded store: a publish, an idle follower, and loading.

Books of 50 levels a side, on the disk of the project. *bare SQLite* upserts prebuilt text without revisions.
*json.loads* parses the text of the rows in memory.
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
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final

from benchmarks.books import book, books, renamed
from benchmarks.measure import ROOT, Group, Prepared, Row, alone, compared, interleaved
from market_index import OrderBook, wire
from market_index_feeds import Store, open_feed, open_store
from market_index_feeds.sqlite import Synchronous

AT_ONCE: Final = 1_000


def groups(*, quick: bool) -> dict[str, Group]:
    return {
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
            "ours": publishing(store, held, AT_ONCE),
            "bare SQLite": bare(folder / "bare-batch.db", held, "full", AT_ONCE),
        }
        each = interleaved(contenders, quick=quick, clock=time.perf_counter, per=AT_ONCE)
    work = f"publish {AT_ONCE:,} books of 50 levels a side in one call, synchronous FULL, each"
    yield compared(work, "µs", each, "ours", "bare SQLite", scale=1e6)


def in_batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Yield so many items at a time, over and over."""
    return cycle([items[start : start + size] for start in range(0, len(items), size)])


def publishing(store: Store, held: list[OrderBook], at_once: int = 1) -> Callable[[], Any]:
    store.publish(*held)
    following = in_batches(held, at_once)
    return lambda: store.publish(*next(following))


UPSERT = (
    "INSERT INTO books VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET revision = excluded.revision, body = excluded.body"
)


def bare(path: Path, held: list[OrderBook], synchronous: Synchronous, at_once: int = 1) -> Callable[[], Any]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("CREATE TABLE books (pair TEXT PRIMARY KEY, revision INTEGER, body TEXT)")
    rows = [(str(one.pair), number, wire.order_book_to_json(one).decode()) for number, one in enumerate(held)]
    connection.executemany(UPSERT, rows)
    following, numbers = in_batches(rows, at_once), count()

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
        "json.loads": Prepared(lambda: read_rows(path), lambda rows: [json.loads(body) for _, body in rows]),
    }
    each = interleaved(contenders, quick=quick, clock=time.process_time)
    work = f"load {size:,} validated rows of {kilobytes:.1f} kB"
    yield compared(work, "s", each, "a feed", "json.loads")


def read_rows(path: Path) -> Any:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT pair, body FROM books").fetchall()
    finally:
        connection.close()
