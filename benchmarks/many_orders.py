"""One process with very many orders: `python -m benchmarks.many_orders`, ten minutes and the time to load them.

A producer writes events to the standard input of `market-index serve orders:-`: first all orders, then blocks of
changes. The text of a block is the monotonic time when it was written, so the header Market-Index-As-Of of a response
shows how long its books took to be served. One client requests one order book after another, and a second one sometimes
the pair list in gzip. `benchmarks.observed` records how long the event loop was blocked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread
from typing import Final
from urllib.parse import urlencode

from attrs import define, field, frozen

from benchmarks.figures import Row, alone, compared
from benchmarks.observed import BEAT_SECONDS, Observed
from benchmarks.report import Group, cells
from market_index_feeds.orders import DEFAULT_HISTORY
from tests.service import Client

ROOT: Final = Path(__file__).resolve().parents[1]
LISTENING: Final = re.compile(r".*listening on http://127\.0\.0\.1:(\d+)").match
BLOCK_SECONDS: Final = 0.05
HISTORY_SECONDS: Final = DEFAULT_HISTORY * BLOCK_SECONDS
PAUSE_SECONDS: Final = 0.001
SAMPLE_SECONDS: Final = 5.0
LIST_SECONDS: Final = 10.0
CAUGHT_UP_SECONDS: Final = 0.5
"""How old the books are at most once the server keeps up with the producer."""

HOT_PAIRS: Final = 100
"""The number of pairs that are requested; every other change is in one of them."""

TITLE: Final = "One process with very many orders"
ABOUT: Final = f"""
A producer writes events to `market-index serve orders:-`: first all orders, then a block of changes every
{BLOCK_SECONDS * 1e3:g} ms. Clients request the books of {HOT_PAIRS} pairs in turn, and the pair list every
{LIST_SECONDS:g} s. *Event loop blocked* is how late a beat of {BEAT_SECONDS * 1e3:g} ms is: how long any request waits.
An idle process shows how late the machine alone makes it.
"""


@frozen
class Load:
    """The number of orders and pairs, the changes per second, and the duration."""

    orders: int
    pairs: int
    changes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.orders:,} orders"

    @property
    def arguments(self) -> list[str]:
        """The options that the producer needs."""
        return ["--orders", str(self.orders), "--pairs", str(self.pairs), "--changes", str(self.changes)]


FULL: Final = Load(1_000_000, 100_000, 2_000, 600)
QUICK: Final = Load(100_000, 10_000, 2_000, 30)


def base_of(number: int) -> str:
    return f"{number:056x}:544f4b454e"


def placed(numbers: random.Random, order_id: str, number: int) -> str:
    ask = numbers.random() < 0.5
    # About 2 quote units per base unit: the price of an offer is near 2 for an ask, and near 0.5 for a bid.
    ratio = (
        f"{numbers.randrange(10**9, 3 * 10**9)}/{10**9}" if ask else f"{10**9}/{numbers.randrange(10**9, 3 * 10**9)}"
    )
    return json.dumps(
        {
            "place": order_id,
            "base": base_of(number),
            "quote": "ADA",
            "offered": "base" if ask else "quote",
            "amount": numbers.randrange(10**6, 10**12),
            "price": ratio,
        },
        separators=(",", ":"),
    )


@define
class Resting:
    """Orders that rest at the first so many pairs: their ids, and the pair of each. Their number stays the same."""

    pairs: int
    pair_of: dict[str, int]
    ids: list[str] = field(init=False)
    size: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.ids = list(self.pair_of)
        self.size = len(self.ids)

    def change(self, numbers: random.Random) -> str:
        """Return a partial fill; or else, in turn, the removal of an order and a new one."""
        at = numbers.randrange(len(self.ids))
        order_id = self.ids[at]
        if numbers.random() < 0.5:
            return placed(numbers, order_id, self.pair_of[order_id])
        if len(self.ids) < self.size:
            order_id = new_id(numbers)
            self.ids.append(order_id)
            self.pair_of[order_id] = numbers.randrange(self.pairs)
            return placed(numbers, order_id, self.pair_of[order_id])
        self.ids[at] = self.ids[-1]
        self.ids.pop()
        del self.pair_of[order_id]
        return json.dumps({"remove": order_id}, separators=(",", ":"))


def new_id(numbers: random.Random) -> str:
    return f"{numbers.getrandbits(256):064x}#{numbers.randrange(4)}"


def produce(load: Load) -> None:
    """Write the events until the reader is closed."""
    numbers = random.Random(11)
    pair_of = {new_id(numbers): number % load.pairs for number in range(load.orders)}
    write = sys.stdout.write
    write('{"reset":true}\n')
    for order_id, number in pair_of.items():
        write(placed(numbers, order_id, number) + "\n")
    commit()
    hot = {order_id: number for order_id, number in pair_of.items() if number < HOT_PAIRS}
    others = {order_id: number for order_id, number in pair_of.items() if number >= HOT_PAIRS}
    both = Resting(HOT_PAIRS, hot), Resting(load.pairs, others)
    following = time.monotonic()
    while True:
        for _ in range(int(load.changes * BLOCK_SECONDS)):
            write(numbers.choice(both).change(numbers) + "\n")
        commit()
        following += BLOCK_SECONDS
        time.sleep(max(following - time.monotonic(), 0))


def commit() -> None:
    sys.stdout.write(json.dumps({"block": str(time.monotonic_ns())}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


@define
class Reader:
    """Requests one order book after another, and records the time and the age of each response."""

    port: int
    stop: Event = field(factory=Event)
    seconds: list[float] = field(factory=list)
    ages: list[float] = field(factory=list)

    def run(self) -> None:
        numbers, newest = random.Random(13), ""
        with closing(Client(self.port)) as client:
            while not self.stop.wait(PAUSE_SECONDS):
                query = urlencode({"base": base_of(numbers.randrange(HOT_PAIRS)), "quote": "ADA"})
                begun = time.monotonic()
                answer = client.request(f"/trading-view/order-book?{query}")
                now = time.monotonic()
                assert answer.status == 200, answer
                self.seconds.append(now - begun)
                if (as_of := answer.headers["market-index-as-of"]) != newest:
                    newest = as_of
                    self.ages.append(now - int(as_of) / 1e9)


@define
class ListReader:
    """Sometimes requests the pair list in gzip."""

    port: int
    stop: Event = field(factory=Event)
    seconds: list[float] = field(factory=list)

    def run(self) -> None:
        while True:
            # A new connection: the server closes one that is idle for so long.
            with closing(Client(self.port)) as client:
                begun = time.monotonic()
                assert client.request("/trading-view/pair-list", headers="Accept-Encoding: gzip\r\n").status == 200
                self.seconds.append(time.monotonic() - begun)
            if self.stop.wait(LIST_SECONDS):
                return


def resident_mebibytes(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@define
class Sampled:
    """The memory of the server in MiB, and the load average of the machine, each `SAMPLE_SECONDS`."""

    memory: list[float] = field(factory=list)
    load_averages: list[float] = field(factory=list)


def rows(load: Load) -> Iterator[Row]:
    """Load the orders, then measure until the time is over."""
    producing = [sys.executable, "-m", "benchmarks.many_orders", "--produce", *load.arguments]
    with tempfile.TemporaryDirectory() as folder:
        recorded, recorded_idle = Path(folder, "observed.json"), Path(folder, "idle.json")
        observing = [sys.executable, "-m", "benchmarks.observed"]
        serving = [*observing, str(recorded), "serve", "orders:-", "--port", "0"]
        begun = time.monotonic()
        with (
            subprocess.Popen([*observing, str(recorded_idle)], cwd=ROOT) as idle,
            subprocess.Popen(producing, cwd=ROOT, stdout=subprocess.PIPE) as producer,
            subprocess.Popen(serving, cwd=ROOT, stdin=producer.stdout, stderr=subprocess.PIPE, text=True) as server,
        ):
            assert server.stderr
            try:
                port = next(int(found[1]) for line in server.stderr if (found := LISTENING(line)))
                Thread(target=server.stderr.read, daemon=True).start()
                until_caught_up(port)
                loaded = time.monotonic()
                yield alone(f"{load}: from the first event until the server keeps up", "s", [loaded - begun])
                reader, lists, sampled = under_load(load, port, server.pid)
            finally:
                idle.terminate()
                producer.kill()
                server.terminate()
                ended = time.monotonic()
        yield alone(f"{load}: from SIGTERM to the end of the process", "s", [time.monotonic() - ended])
        observed, observed_idle = (Observed.load(one).since(loaded) for one in (recorded, recorded_idle))
    yield from answered(load, reader, lists)
    yield from used(load, sampled)
    yield from blocked(load, observed)
    yield from percentiles(f"{load}: an idle process on the same machine: event loop blocked", observed_idle.late)


def until_caught_up(port: int) -> None:
    """Wait until all orders are loaded, and the blocks that were written meanwhile."""
    while True:
        # A new connection each time: a server that loads may close one that is idle.
        with closing(Client(port)) as client:
            as_of = client.request("/trading-view/pair-list", "HEAD").headers.get("market-index-as-of")
        if as_of is not None and time.monotonic() - int(as_of) / 1e9 < CAUGHT_UP_SECONDS:
            return
        time.sleep(CAUGHT_UP_SECONDS)


def under_load(load: Load, port: int, process: int) -> tuple[Reader, ListReader, Sampled]:
    reader, lists, sampled = Reader(port), ListReader(port), Sampled()
    threads = [Thread(target=reader.run), Thread(target=lists.run)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + load.seconds
    while time.monotonic() < until:
        time.sleep(SAMPLE_SECONDS)
        sampled.memory.append(resident_mebibytes(process))
        sampled.load_averages.append(os.getloadavg()[0])
    reader.stop.set()
    lists.stop.set()
    for thread in threads:
        thread.join()
    return reader, lists, sampled


def answered(load: Load, reader: Reader, lists: ListReader) -> Iterator[Row]:
    yield from percentiles(f"{load}: from a block written until it is served", reader.ages)
    yield from percentiles(f"{load}: order book answered", reader.seconds)
    yield alone(f"{load}: the first pair list answered, gzip", "ms", lists.seconds[:1], scale=1e3)
    yield alone(f"{load}: later pair lists answered, gzip", "ms", lists.seconds[1:], scale=1e3)


def used(load: Load, sampled: Sampled) -> Iterator[Row]:
    """The memory grows until the history is full; then it has to stay the same."""
    memory, size = sampled.memory, max(len(sampled.memory) // 10, 1)
    middle = memory[len(memory) // 2 :][:size]
    contenders = {"at the end": memory[-size:], "the memory in the middle": middle}
    is_full = load.seconds > 2 * HISTORY_SECONDS
    yield alone(f"{load}: memory at the start", "MiB", memory[:1])
    yield compared(
        f"{load}: memory at the end",
        "MiB",
        contenders,
        "at the end",
        "the memory in the middle",
        at_most=1.05 if is_full else None,
        headline=True,
    )
    yield alone(f"{load}: load average of the machine", "", sampled.load_averages)


def blocked(load: Load, observed: Observed) -> Iterator[Row]:
    yield from percentiles(f"{load}: event loop blocked", observed.late, at_most={"p99.9": 20})
    pauses = [seconds for _, _, seconds, _ in observed.collections] or [0.0]
    yield alone(f"{load}: longest garbage collection", "ms", [max(pauses)], scale=1e3)
    yield alone(f"{load}: time in garbage collections", "%", [100 * sum(pauses) / load.seconds])
    yield alone(f"{load}: objects freed by garbage collections", "", [sum(freed for *_, freed in observed.collections)])


def percentiles(work: str, seconds: Sequence[float], at_most: Mapping[str, float] = {}) -> Iterator[Row]:
    cuts = quantiles(seconds, n=1_000, method="inclusive")
    named = {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "longest": max(seconds)}
    for name, value in named.items():
        headline = name in at_most
        yield alone(f"{work}: {name}", "ms", [value], scale=1e3, at_most=at_most.get(name), headline=headline)


def groups(*, quick: bool) -> dict[str, Group]:
    return {"many": partial(rows, QUICK if quick else FULL)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=FULL.orders)
    parser.add_argument("--pairs", type=int, default=FULL.pairs)
    parser.add_argument("--changes", type=int, default=FULL.changes, help="per second")
    parser.add_argument("--seconds", type=float, default=FULL.seconds)
    parser.add_argument("--produce", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    load = Load(chosen.orders, chosen.pairs, chosen.changes, chosen.seconds)
    if chosen.produce:
        produce(load)
    for row in rows(load):
        print(" | ".join(cells(row)), flush=True)


if __name__ == "__main__":
    main()
