"""A real server under load for minutes, for `make nightly`: `python -m tests.soak --seconds 300`.

One process publishes into a SQLite store as fast as it can, `market-index serve` follows the store, and clients check
every answer: the status is 200, a book is exactly the one that was published, all pairs of a pair list are of one
publication, and no client sees an older publication than before. The memory of the server must stay flat.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any, Final
from urllib.parse import urlencode

from tests.command import Running, running
from tests.faults.publisher import PAIRS, bid_prices
from tests.market_index_feeds.made_up import pair
from tests.service import Client
from tests.waiting import DEADLINE_SECONDS, eventually

CLIENTS: Final = 3
FIRST_ANSWERS: Final = 200
"""The answers of a client after which the memory of the server is taken for the first time."""

MAX_GROWTH_KIB: Final = 8 * 1024
"""By how much the median memory of the last quarter may exceed that of the second quarter."""


class Reader:
    """A client that checks every answer."""

    def __init__(self, port: int, number: int) -> None:
        self.answers = 0
        self.generation = 0
        """The newest publication that it saw."""
        self.error: Exception | None = None
        self._client = Client(port)
        self._random = random.Random(number)

    def read_until(self, is_over: Callable[[], bool]) -> None:
        try:
            while not is_over():
                self.read()
        except Exception as error:  # noqa: BLE001  # the main thread raises it
            self.error = error
        finally:
            self._client.close()

    def read(self) -> None:
        number = self._random.randrange(PAIRS + 1)
        if number == PAIRS:
            generation = generation_of_pair_list(self._answer("/trading-view/pair-list"))
        else:
            query = urlencode({"base": str(pair(number).base), "quote": "ADA"})
            generation = generation_of_book(number, self._answer(f"/trading-view/order-book?{query}"))
        assert generation >= self.generation, f"got publication {generation} after {self.generation}"
        self.generation = generation
        self.answers += 1

    def _answer(self, target: str) -> Any:
        answer = self._client.ask(target, headers=self._random.choice(["", "Accept-Encoding: gzip\r\n"]))
        assert answer.status == 200, f"{target}: got {answer.status}: {answer.body!r}"
        is_compressed = answer.headers.get("content-encoding") == "gzip"
        return json.loads(gzip.decompress(answer.body) if is_compressed else answer.body)


def generation_of_pair_list(found: Any) -> int:
    """Return the publication of a pair list, all of which is of one."""
    (spot,) = {info["last_spot"] for info in found["pairs"]}
    bases = [str(pair(number).base) for number in range(PAIRS)]
    wanted = {"pairs": [{"base": base, "quote": "ADA", "last_spot": spot} for base in bases]}
    assert found == wanted, f"the pair list must be {wanted}, got {found}"
    return int(spot)


def generation_of_book(number: int, found: Any) -> int:
    """Return the publication of a book, which is exactly the one that was published."""
    generation = int(found["spot"])
    bids = [{"price": str(price), "accumulated_liquidity": generation} for price in reversed(bid_prices(generation))]
    base = str(pair(number).base)
    wanted = {"base": base, "quote": "ADA", "spot": str(generation), "bids": bids, "asks": []}
    assert found == wanted, f"the book must be {wanted}, got {found}"
    return generation


def soak(folder: Path, is_over: Callable[[list[Reader]], bool]) -> None:
    """Serve, publish and read until it is over. Raises `AssertionError` for a wrong answer or growing memory."""
    store, acknowledged = folder / "market.db", folder / "acknowledged"
    with publishing(store, acknowledged) as publisher:
        eventually(lambda: last_acknowledged(acknowledged))
        with running(folder, store, "--port", "0") as server:
            port = server.service.port
            readers = [Reader(port, number) for number in range(CLIENTS)]
            samples = run(readers, server, lambda: is_over(readers))
            assert publisher.poll() is None, "the publisher ended by itself"
            publisher.kill()
            publisher.wait(DEADLINE_SECONDS)
            eventually(lambda: newest(port) >= last_acknowledged(acknowledged))
            assert server.end() == 0, server.said
            assert "Traceback" not in server.said, server.said
    print(f"{last_acknowledged(acknowledged)} publications, {sum(reader.answers for reader in readers)} answers")
    assert_memory_is_flat(samples)


def run(readers: list[Reader], server: Running, is_over: Callable[[], bool]) -> list[int]:
    """Let the readers read, and return the memory of the server, in KiB, taken again and again."""
    over = False
    threads = [Thread(target=reader.read_until, args=[lambda: over]) for reader in readers]
    for thread in threads:
        thread.start()
    samples: list[int] = []
    try:
        while not is_over() and all(reader.error is None for reader in readers):
            time.sleep(0.1)  # between two samples
            if min(reader.answers for reader in readers) > FIRST_ANSWERS:
                samples += resident_kib(server.process.pid)
    finally:
        over = True
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
    for reader in readers:
        if reader.error is not None:
            raise reader.error
    return samples


@contextmanager
def publishing(store: Path, acknowledged: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Publish as fast as the store takes it; each publication that was acknowledged is a line of the file."""
    with acknowledged.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "tests.faults.publisher", store, "1"], stdout=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_SECONDS)


def last_acknowledged(path: Path) -> int:
    lines = re.findall(r"(\d+)\n", path.read_text())
    return int(lines[-1]) if lines else 0


def newest(port: int) -> int:
    client = Client(port)
    try:
        return generation_of_pair_list(client.ask("/trading-view/pair-list").json)
    finally:
        client.close()


def resident_kib(process_id: int) -> list[int]:
    """Return the resident memory of a process in KiB; nothing where the system has no /proc."""
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process_id}/status").read_text())
    except FileNotFoundError:
        return []
    return [int(found[1])] if found else []


def assert_memory_is_flat(samples: list[int]) -> None:
    quarter = len(samples) // 4
    if not quarter:
        print("memory: not measured, as there is no /proc or the run was too short")
        return
    before, after = median(samples[quarter : 2 * quarter]), median(samples[-quarter:])
    print(f"memory of the server: {before / 1024:.1f} MiB in the second quarter, {after / 1024:.1f} MiB in the last")
    assert after <= before + MAX_GROWTH_KIB, f"memory grew by {(after - before) / 1024:.1f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="how long, 300 by default")
    end = time.monotonic() + parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        soak(Path(folder), lambda _: time.monotonic() >= end)


if __name__ == "__main__":
    main()
