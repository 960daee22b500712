"""Requests a second over a real socket: one server at a time on one core, wrk on the other."""

from __future__ import annotations

import gzip
import http.client
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from attrs import evolve, frozen

from market_index import MarketIndex, OrderBook, wire
from tests.benchmarks.books import book, books
from tests.benchmarks.figures import Row, compared

CONNECTIONS = 32
PUBLISHES = 1_000
ROOT = Path(__file__).resolve().parents[2]
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]

BOOK_50, BOOK_500 = "order book of 50 levels a side", "order book of 500 levels a side"
LIST_1K, LIST_10K = "pair list of 1,000", "pair list of 10,000"
LIST_GZIP, LIST_304 = "pair list of 10,000 in gzip", "304 to the pair list of 10,000"
MIXED = "19 books to one pair list of 10,000"
MOUNTED = "under /api/v1: "

PEERS: dict[str, dict[str, float | None]] = {
    "raw": {BOOK_50: 0.85, BOOK_500: 0.85, LIST_10K: 1.0},
    "fastapi_pydantic": {BOOK_50: 4, BOOK_500: 12, LIST_10K: 10},
    "litestar_msgspec": {BOOK_50: None, BOOK_500: None, LIST_10K: None},
    "starlette_each_time": {BOOK_50: None, BOOK_500: None, LIST_10K: None},
    "go": {BOOK_50: 1, BOOK_500: 3, LIST_10K: None},
}
"""How many times as fast as each peer we want to be; None where there is no goal."""

Rates: TypeAlias = dict[str, dict[str, list[float]]]
"""Requests a second, by target and contender, round by round."""


@frozen
class Target:
    """What is asked of a server; `expected` is what must come back before anything is timed."""

    name: str
    path: str
    expected: bytes
    headers: tuple[tuple[str, str], ...] = ()
    script: str | None = None


@frozen
class Contender:
    """A server: what it serves, and what is asked of it."""

    name: str
    file: Path
    targets: tuple[Target, ...]
    publishes: int = 0


def rows(*, quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        rates = measured(Path(folder), rounds=1 if quick else 9, seconds=1)
    for peer, goals in PEERS.items():
        for target, goal in goals.items():
            if peer in rates[target]:
                yield compared(target, "/s", rates[target], "market_index", peer, at_least=goal)
    for target in (BOOK_50, LIST_10K):
        yield compared(target, "/s", rates[target], "market_index", "market_index_routed", at_least=1.1)
    yield compared(LIST_1K, "/s", rates[LIST_1K], "market_index", "raw", at_least=0.95)
    for target in (MOUNTED + BOOK_50, MOUNTED + BOOK_500):
        yield compared(target, "/s", rates[target], "market_index_mounted", "raw_mounted", at_least=0.85)
    ours = {target: contenders["market_index"] for target, contenders in rates.items() if "market_index" in contenders}
    yield compared(LIST_GZIP, "/s", ours, LIST_GZIP, LIST_10K, at_least=2.5)
    yield compared(LIST_304, "/s", ours, LIST_304, LIST_10K, at_least=8)
    work = f"{MIXED}, with {PUBLISHES:,} publishes a second"
    yield compared(work, "/s", rates[MIXED], "publishing", "market_index", at_least=0.7)


def measured(folder: Path, rounds: int, seconds: int) -> Rates:
    rates: Rates = {}
    contenders = list(prepared(folder))
    for number in range(rounds):
        for contender in contenders:
            with serving(contender, folder) as port:
                for target in contender.targets:
                    check(port, target, contender)
                    rate = requests_a_second(port, target, seconds)
                    rates.setdefault(target.name, {}).setdefault(contender.name, []).append(rate)
        print(f"  round {number + 1} of {rounds} over HTTP", file=sys.stderr, flush=True)
    return rates


def prepared(folder: Path) -> Iterator[Contender]:
    numbers = random.Random(1)
    small, large = book(numbers, 50), book(numbers, 500)
    # In ledger order, for the sake of peers that list pairs as they were given.
    ten_thousand = MarketIndex([small, large, *books(9_998, 0, seed=2)])
    thousand = MarketIndex([small, large, *books(998, 0, seed=3)])
    files = {"10k": folder / "10k.ndjson", "1k": folder / "1k.ndjson"}
    for file, index in ((files["10k"], ten_thousand), (files["1k"], thousand)):
        file.write_bytes(b"".join(wire.order_book_to_json(one) + b"\n" for one in index.values()))

    two = (order_book(BOOK_50, small), order_book(BOOK_500, large))
    listed = Target(LIST_10K, "/trading-view/pair-list", wire.pair_list_to_json(ten_thousand.pair_list()))
    zipped = evolve(listed, name=LIST_GZIP, headers=(("Accept-Encoding", "gzip"),))
    known = evolve(listed, name=LIST_304, expected=b"", headers=(("If-None-Match", "*"),))
    script = folder / "mixed.lua"
    script.write_text(
        "local asked = 0\n"
        "request = function()\n"
        "  asked = asked + 1\n"
        f'  return wrk.format("GET", asked % 20 == 0 and "{listed.path}" or "{two[0].path}")\n'
        "end\n"
    )
    mixed = evolve(two[0], name=MIXED, script=str(script))
    all_three = (*two, listed)
    yield Contender("raw", files["10k"], all_three)
    yield Contender("market_index", files["10k"], (*all_three, zipped, known, mixed))
    yield Contender("market_index_routed", files["10k"], all_three)
    yield Contender("publishing", files["10k"], (mixed,), PUBLISHES)
    for peer in ("fastapi_pydantic", "litestar_msgspec", "starlette_each_time"):
        yield Contender(peer, files["10k"], all_three)
    if shutil.which("go"):
        source = ROOT / "tests/benchmarks/servers/encoding_each_time.go"
        environment = os.environ | {"GOCACHE": str(folder / "cache"), "GOFLAGS": "-mod=mod"}
        subprocess.run(["go", "build", "-o", str(folder / "go"), str(source)], env=environment, check=True)
        yield Contender("go", files["10k"], all_three)
    short = (Target(LIST_1K, listed.path, wire.pair_list_to_json(thousand.pair_list())),)
    yield Contender("raw", files["1k"], short)
    yield Contender("market_index", files["1k"], short)
    mounted = tuple(evolve(one, name=MOUNTED + one.name, path="/api/v1" + one.path) for one in two)
    yield Contender("raw_mounted", files["10k"], mounted)
    yield Contender("market_index_mounted", files["10k"], mounted)


def order_book(name: str, one: OrderBook) -> Target:
    path = f"/trading-view/order-book?base={one.pair.base}&quote={one.pair.quote}"
    return Target(name, path, wire.order_book_to_json(one))


@contextmanager
def serving(contender: Contender, folder: Path) -> Iterator[int]:
    """Run the server on the first core until it answers, and end it afterwards."""
    port = 18_000 + os.getpid() % 1_000
    if contender.name == "go":
        command = [str(folder / "go"), str(port), str(contender.file)]
    else:
        name = "market_index" if contender.publishes else contender.name
        command = [sys.executable, "-m", "tests.benchmarks.servers", name, str(port), str(contender.file)]
        command += [str(contender.publishes)] if contender.publishes else []
    process = subprocess.Popen(
        [*pinned(CORES[0]), *command], cwd=ROOT, env=os.environ | {"GOMAXPROCS": "1"}, stderr=subprocess.DEVNULL
    )
    try:
        patience = time.monotonic() + 60
        while True:
            try:
                answer(port, Target("", "/", b""))
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > patience:
                    raise RuntimeError(f"{contender.name} does not serve") from None
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def pinned(core: int) -> list[str]:
    return ["taskset", "-c", str(core)] if shutil.which("taskset") else []


def answer(port: int, target: Target) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", target.path, headers=dict(target.headers))
    response = connection.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]  # to have it in hand once the connection is closed
    connection.close()
    return response


def check(port: int, target: Target, contender: Contender) -> None:
    """Compare the bytes, and warm the server up."""
    for _ in range(50):
        response: Any = answer(port, target)
        body = gzip.decompress(response.body) if response.headers["content-encoding"] else response.body
        if response.status not in {200, 304} or (body != target.expected and not contender.publishes):
            raise RuntimeError(f"{contender.name} answers {target.path} with {response.status}: {body[:200]!r}")


def requests_a_second(port: int, target: Target, seconds: int) -> float:
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s"]
    for name, value in target.headers:
        command += ["-H", f"{name}: {value}"]
    if target.script:
        command += ["-s", target.script]
    command.append(f"http://127.0.0.1:{port}{target.path}")
    done = subprocess.run([*pinned(CORES[-1]), *command], capture_output=True, text=True, check=True)
    if "Non-2xx or 3xx" in done.stdout or "Socket errors" in done.stdout:
        raise RuntimeError(done.stdout)
    found = re.search(r"Requests/sec: +([0-9.]+)", done.stdout)
    if found is None:
        raise RuntimeError(done.stdout)
    return float(found[1])
