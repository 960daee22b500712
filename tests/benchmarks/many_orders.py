"""One process with very many orders: `python -m tests.benchmarks.many_orders`, ten minutes and the time to load them.

A producer writes events to the standard input of `market-index serve orders:-`: first all orders, then blocks of
changes. The name of a block is the monotonic time when it was written, so the header Market-Index-As-Of of a response
shows how long its books took to be served. One client requests one order book after another, and a second one sometimes
the pair list in gzip. The response times show how long the event loop was blocked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread
from typing import Final
from urllib.parse import urlencode

from attrs import define, field, frozen

from tests.service import Client

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = Path(sys.executable).with_name("market-index")
LISTENING: Final = re.compile(r".*listening on http://127\.0\.0\.1:(\d+)").match
BLOCK_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 0.001
SAMPLE_SECONDS: Final = 5.0
LIST_SECONDS: Final = 30.0
HOT_PAIRS: Final = 100
"""The number of pairs that are requested; every other change is in one of them."""


@frozen
class Load:
    """The number of orders and pairs, the changes per second, and the duration."""

    orders: int
    pairs: int
    changes: int
    seconds: float


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


def produce(load: Load) -> None:
    """Write the events until the reader is closed."""
    numbers = random.Random(11)
    pair_of: dict[str, int] = {}
    write = sys.stdout.write
    write('{"reset":true}\n')
    for number in range(load.orders):
        order_id = f"{numbers.getrandbits(256):064x}#{number % 4}"
        pair_of[order_id] = number % load.pairs
        write(placed(numbers, order_id, pair_of[order_id]) + "\n")
    commit()
    ids = list(pair_of)
    following = time.monotonic()
    while True:
        for _ in range(int(load.changes * BLOCK_SECONDS)):
            write(change(numbers, ids, pair_of, load) + "\n")
        commit()
        following += BLOCK_SECONDS
        time.sleep(max(following - time.monotonic(), 0))


def change(numbers: random.Random, ids: list[str], pair_of: dict[str, int], load: Load) -> str:
    """Return a partial fill, the removal of an order, or a new one."""
    at, kind = numbers.randrange(len(ids)), numbers.random()
    order_id = ids[at]
    if kind < 0.25:
        ids[at] = ids[-1]
        ids.pop()
        del pair_of[order_id]
        return json.dumps({"remove": order_id}, separators=(",", ":"))
    if kind < 0.5:
        order_id = f"{numbers.getrandbits(256):064x}#0"
        ids.append(order_id)
        pair_of[order_id] = numbers.randrange(HOT_PAIRS if numbers.random() < 0.5 else load.pairs)
    return placed(numbers, order_id, pair_of[order_id])


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


def measured(load: Load) -> Iterator[str]:
    """Yield the measurements as lines."""
    arguments = ["--produce", "--orders", str(load.orders), "--pairs", str(load.pairs), "--changes", str(load.changes)]
    begun = time.monotonic()
    producing = [sys.executable, "-m", "tests.benchmarks.many_orders", *arguments]
    serving = [str(COMMAND), "serve", "orders:-", "--port", "0"]
    with (
        subprocess.Popen(producing, cwd=ROOT, stdout=subprocess.PIPE) as producer,
        subprocess.Popen(serving, stdin=producer.stdout, stderr=subprocess.PIPE, text=True) as server,
    ):
        assert server.stderr
        try:
            port = next(int(found[1]) for line in server.stderr if (found := LISTENING(line)))
            Thread(target=server.stderr.read, daemon=True).start()
            yield f"loaded and listening after {time.monotonic() - begun:.0f} s"
            yield from under_load(load, port, server.pid)
        finally:
            producer.kill()
            server.terminate()


def under_load(load: Load, port: int, process: int) -> Iterator[str]:
    reader, lists = Reader(port), ListReader(port)
    threads = [Thread(target=reader.run), Thread(target=lists.run)]
    memory = []
    for thread in threads:
        thread.start()
    until = time.monotonic() + load.seconds
    while time.monotonic() < until:
        time.sleep(SAMPLE_SECONDS)
        memory.append(resident_mebibytes(process))
    reader.stop.set()
    lists.stop.set()
    for thread in threads:
        thread.join()
    yield f"memory in MiB: {', '.join(f'{one:.0f}' for one in memory[:: max(len(memory) // 10, 1)])}"
    yield f"{len(reader.ages)} blocks seen, from written to served in ms: {percentiles(reader.ages)}"
    yield f"{len(reader.seconds)} order books, answered in ms: {percentiles(reader.seconds)}"
    yield f"pair lists in gzip, answered in ms: {', '.join(f'{one * 1e3:.0f}' for one in lists.seconds)}"


def percentiles(seconds: Sequence[float]) -> str:
    cuts = quantiles(seconds, n=1_000)
    named = {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "longest": max(seconds)}
    return ", ".join(f"{name} {value * 1e3:.2f}" for name, value in named.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=2_000, help="per second")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--produce", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    load = Load(chosen.orders, chosen.pairs, chosen.changes, chosen.seconds)
    if chosen.produce:
        produce(load)
    for line in measured(load):
        print(line, flush=True)


if __name__ == "__main__":
    main()
