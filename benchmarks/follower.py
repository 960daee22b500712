"""A feed of a service: the time from a publish to the live index of a follower, and the cost of an idle follower.

One process serves and publishes; this one follows. The spot price of a book is the time of its publication, by the
monotonic clock of the machine. *Polled* is the same service without its stream.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from benchmarks.books import books
from benchmarks.measure import Group, Row, alone, compared, percentile
from benchmarks.processes import elsewhere, line_of
from market_index import LiveIndex
from market_index_feeds import open_feed
from market_index_http import create_app
from market_index_http.stream import Stream
from tests.service import Restartable

OURS: Final = "ours"
POLLED: Final = "polled"
PAIRS: Final = 300
LEVELS: Final = 50
BUSY: Final = books(1, LEVELS)[0].pair
"""A pair that changes most of the time."""


def groups(*, quick: bool) -> dict[str, Group]:
    return {"arrivals": partial(arrivals, 3 if quick else 10), "idle": partial(idle, 10_000, 2 if quick else 10)}


def arrivals(seconds: float) -> Iterator[Row]:
    """Measure the milliseconds from a publish to the live index: of random pairs, and of those beside a busy one."""
    for work, busy in ((f"follower of {PAIRS} pairs", 0), ("quiet pairs beside one of 1,000 changes a second", 1_000)):
        waits: dict[str, list[list[float]]] = {OURS: [], POLLED: []}
        for _ in range(3):
            for kind, rounds in waits.items():
                rounds.append(followed(kind, busy, seconds))
        for percent in (50, 99):
            figures = {kind: [percentile(one, percent) for one in rounds] for kind, rounds in waits.items()}
            yield compared(f"{work}, publish to live: p{percent}", "ms", figures, OURS, POLLED)


def followed(kind: str, busy: int, seconds: float) -> list[float]:
    """Return the milliseconds until the changes of all pairs but the busy one were live.

    A change that was published while the follower started is not counted: it waited for the first books.
    """
    live, waits = LiveIndex(), list[float]()
    with serving(kind, PAIRS, busy) as url, open_feed(url) as feed:
        feed.start(live)
        started_at, ends_at = time.monotonic_ns(), time.monotonic() + seconds
        changes = live.changes()
        next(changes)
        for _, changed, _ in changes:
            now = time.monotonic_ns()
            published = [int(one.spot) for one in changed if one.spot and one.pair != BUSY]
            waits += [(now - at) / 1e6 for at in published if at > started_at]
            if time.monotonic() > ends_at:
                break
    return waits


def idle(count: int, seconds: float) -> Iterator[Row]:
    """Measure the processor time of a follower of many pairs while nothing changes."""
    live = LiveIndex()
    with serving("idle", count, 0) as url, open_feed(url) as feed:
        feed.start(live)
        before = time.process_time()
        time.sleep(seconds)
        used = (time.process_time() - before) / seconds * 1e3
    yield alone(f"idle follower of {count:,} pairs: processor time in a second", "ms", [used])


@contextmanager
def serving(kind: str, count: int, busy: int) -> Iterator[str]:
    """Serve so many pairs in another process. Yield the base URL."""
    with elsewhere("benchmarks.follower", kind, count, busy) as process:
        yield f"http://127.0.0.1:{line_of(process)}"


def serve(kind: str, count: int, busy: int) -> None:
    """Serve books, print the port, and change 50 random books and so many times the busy one a second."""
    live, numbers = LiveIndex(books(count, LEVELS if count == PAIRS else 3)), random.Random(7)
    others = [pair for pair in live.current if pair != BUSY]
    app = create_app(live, routes=[] if kind == POLLED else [Stream(live).route()])
    print(Restartable(app).port, flush=True)
    steps = max(1, busy // 50)
    for step in itertools.count():
        time.sleep(0.02 / steps)
        if kind != "idle":
            changed = live.current[BUSY if step % steps else numbers.choice(others)]
            bids = [(changed.bids[0].price, numbers.randrange(1, 10**12))]
            live.publish(changed.apply(bids=bids, spot=str(time.monotonic_ns())))


if __name__ == "__main__":
    serve(sys.argv[1], *map(int, sys.argv[2:]))
