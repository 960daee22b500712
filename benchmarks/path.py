"""The whole path: from a publish, through a store and `market-index serve`, to a client of the stream of changes.

The publisher, `market-index serve` and the client are three processes. A publish has arrived with the first event that
contains it or a later one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.books import books
from benchmarks.measure import ROOT, Group, Row, alone, percentile
from benchmarks.processes import elsewhere, line_of
from benchmarks.stream import FILE
from market_index import OrderBook
from market_index_feeds import Store, open_store
from tests.command import running
from tests.nats import served

PAIRS: Final = 100
RATES: Final = (10, 100)


def groups(*, quick: bool) -> dict[str, Group]:
    return {medium: partial(rows, medium, quick=quick) for medium in ("file", "NATS")}


def rows(medium: str, *, quick: bool) -> Iterator[Row]:
    rounds, publishes = (3, 40) if quick else (9, 100)
    measured: dict[int, list[list[float]]] = {rate: [] for rate in RATES}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as name, ExitStack() as stack:
        folder = Path(name)
        url = f"{stack.enter_context(served(folder)).url}/books" if medium == "NATS" else str(folder / "market.db")
        held = books(PAIRS, 50, seed=11)
        store = stack.enter_context(open_store(url))
        store.publish(*held)
        port = stack.enter_context(running(folder, url, "--port", 0)).service.port
        for number in range(rounds):
            for rate in RATES:
                first = 1 + (number * len(RATES) + RATES.index(rate)) * publishes
                measured[rate].append(one_round(store, held[0], port, rate, range(first, first + publishes)))
    for rate, each in measured.items():
        for percent in (50, 99):
            waits = [percentile(one, percent) for one in each]
            yield alone(f"publish to the event of a client, {medium}, {rate} per second: p{percent}", "ms", waits)


def one_round(store: Store, one: OrderBook, port: int, rate: int, numbers: range) -> list[float]:
    """Publish a book with these spot prices, and return the milliseconds until a client had each."""
    sent: dict[int, int] = {}
    arrivals: dict[int, int] = {}
    with elsewhere(FILE, "follow", port, 1) as client:
        line_of(client)
        due = time.monotonic()
        for number in numbers:
            time.sleep(max(due - time.monotonic(), 0))
            sent[number] = time.monotonic_ns()
            store.publish(one.apply(spot=str(number)))
            due += 1 / rate
        while numbers[-1] not in arrivals:
            number, at, _ = map(int, line_of(client).split())
            arrivals[number] = at
    return [
        (min(at for arrived, at in arrivals.items() if arrived >= number) - sent[number]) / 1e6 for number in numbers
    ]
