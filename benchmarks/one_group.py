"""Measures one group in its own process, with a new heap; a crash ends only that process.

`python -m benchmarks.one_group MODULE GROUP [--quick]` prints each row as a line of JSON when it is measured, and
an error as the last line.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import cattrs

from benchmarks.figures import Row
from benchmarks.report import GroupFailed

ROOT: Final = Path(__file__).resolve().parents[1]
LARGE_BLOCK_BYTES: Final = 31 * 2**20


def isolated(module: str, group: str, *, quick: bool) -> Iterator[Row]:
    """Yield the rows of a group that another process measures.

    Raises:
        GroupFailed: the process failed; the rows before are valid.
    """
    command = [sys.executable, "-m", "benchmarks.one_group", module, group, *(["--quick"] if quick else [])]
    error = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                content = json.loads(line)
                if "error" in content:
                    error = content["error"]
                else:
                    yield cattrs.structure(content, Row)
        except BaseException:
            process.terminate()
            raise
    if error or process.returncode:
        raise GroupFailed(error or f"the process of the group ended with {process.returncode}")


def terminate_by_exception() -> None:
    """Turn SIGTERM into an exception, so that a process ends the servers that it started; most are stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def keep_freed_memory() -> None:
    """Let glibc keep the memory of freed blocks, as in a process that has run for a while.

    Freeing a block raises the size from which blocks are returned to the system, up to 32 MiB. Otherwise the page
    faults of large bodies would depend on the previous contenders.
    """
    bytes(LARGE_BLOCK_BYTES)


def main() -> int:
    terminate_by_exception()
    keep_freed_memory()
    module, group, *options = sys.argv[1:]
    try:
        for row in import_module(f"benchmarks.{module}").groups(quick="--quick" in options)[group]():
            print(json.dumps(cattrs.unstructure(row)), flush=True)
    except Exception as error:  # noqa: BLE001  # the report contains any error
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
