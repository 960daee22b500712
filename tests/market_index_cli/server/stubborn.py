"""A supervisor with one worker that ignores SIGTERM: `python -m tests.market_index_cli.server.stubborn SECONDS`.

Its own module, because a worker imports the main module again, and that of its function.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from market_index_cli.server.workers import supervise


def ignore_sigterm(_: socket.socket, __: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("working", flush=True)
    while True:
        signal.pause()


def end_with_the_second_worker(started: Path, _: socket.socket, __: int) -> None:
    """Fail the first time, which a file records; then end the supervisor."""
    if not started.exists():
        started.touch()
        sys.exit(3)
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listener:
        raise SystemExit(supervise(ignore_sigterm, listener, 1, float(sys.argv[1]), lambda _: True))
