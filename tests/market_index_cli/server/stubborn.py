"""A worker that ignores SIGTERM, with its supervisor, as a program for the tests of workers."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable

from market_index_cli.server.workers import supervise


def work(_: socket.socket, on_serving: Callable[[], object], __: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("working", flush=True)
    on_serving()
    while True:
        time.sleep(60)


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        raise SystemExit(supervise(work, listener, 1, timeout=0.2))


if __name__ == "__main__":
    main()
