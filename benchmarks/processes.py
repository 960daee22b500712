"""Modules of the benchmarks that run in a process of their own and exchange lines, and servers of other programs."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from benchmarks.measure import ROOT
from tests.waiting import eventually


@contextmanager
def elsewhere(module: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a module in another process, which ends with the block."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str], *question: object) -> str:
    """Return the next line that a process writes, after one that it reads if there is a question."""
    assert process.stdin
    assert process.stdout
    for one in question:
        print(one, file=process.stdin, flush=True)
    line = process.stdout.readline().rstrip()
    assert line, f"{process.args!r} has ended"
    return line


def await_listener(port: int) -> None:
    """Wait until a server accepts connections."""

    def accepts() -> bool:
        with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    eventually(accepts)
