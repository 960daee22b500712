"""Costs of a process: its memory, and importing the library.

Memory is the growth of the resident set once a process has read the books and served each as JSON and as gzip. An
import is the processor time of a new process, with cached bytecode.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.books import books
from benchmarks.measure import Group, Row, compared
from market_index import wire

SERVED = """
import asyncio, gc, sys
from market_index import LiveIndex, wire
from market_index_http import create_app

def resident():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))

async def nothing(message):
    pass

async def serve(live):
    app = create_app(live)
    for pair in live.current:
        query = f"base={pair.base}&quote={pair.quote}".encode()
        for headers in [], [(b"accept-encoding", b"gzip")]:
            await app({"type": "http", "method": "GET", "path": "/trading-view/order-book", "root_path": "",
                       "query_string": query, "headers": headers}, None, nothing)
    return app

before = resident()
with open(sys.argv[1], "rb") as lines:
    live = LiveIndex(map(wire.order_book_from_json, lines))
app = asyncio.run(serve(live))
print(resident() - before)
"""


def groups(*, quick: bool) -> dict[str, Group]:
    return {"memory": partial(memory, 3), "import": partial(importing, 9 if quick else 31)}


def memory(rounds: int) -> Iterator[Row]:
    lines = [wire.order_book_to_json(one) for one in books(10_000, 20)]
    size = sum(map(len, lines)) / 2**20
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "books.ndjson")
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        command = [sys.executable, "-c", SERVED, str(path)]
        taken = [
            int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 2**20
            for _ in range(rounds)
        ]
    work = "memory of 10,000 pairs of 20 levels a side, each served once"
    contenders = {"ours": taken, "their JSON": [size] * rounds}
    yield compared(work, "MiB", contenders, "ours", "their JSON")


def importing(rounds: int) -> Iterator[Row]:
    def imported(statement: str) -> float:
        script = f"import time; begun = time.process_time()\n{statement}\nprint(time.process_time() - begun)"
        # Bytecode is cached, as in an installation.
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, "-c", script]
        return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)

    statements = ("import market_index", "import attrs")
    seconds: dict[str, list[float]] = {statement: [] for statement in statements}
    for _ in range(rounds + 1):
        for statement in statements:
            seconds[statement].append(imported(statement))
    # The first round caches bytecode.
    seconds = {name: values[1:] for name, values in seconds.items()}
    yield compared("import market_index", "ms", seconds, *statements, scale=1e3)
