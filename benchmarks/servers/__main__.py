"""Serves one contender on 127.0.0.1: `python -m benchmarks.servers NAME PORT BOOKS [PUBLISHES_PER_SECOND]`.

BOOKS is a file of order books, one per line. All Python contenders run on the same uvicorn: ours with the connections
of the command, the others with those of uvicorn, and otherwise the same settings.
"""

from __future__ import annotations

import importlib
import random
import sys
import threading
import time
from functools import partial
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from market_index import LiveIndex, wire
from market_index_cli.server.http_server import Server
from market_index_cli.server.listeners import bind
from market_index_http import create_app, find_response

STOPPED_SECONDS = 0.08
"""A thread with this delay was stopped with its process."""


def publish(live: LiveIndex, per_second: int) -> None:
    """Publish books at a rate, one at a time: another spot price and another best bid of a random pair."""
    numbers = random.Random(1)
    pairs = list(live.current)
    due = time.perf_counter()
    while True:
        book = live.current.order_book(numbers.choice(pairs))
        spot = f"0.{numbers.randrange(10**6, 10**8):09}"
        live.publish(book.apply(bids=[(spot, numbers.randrange(1, 10**9))], spot=spot))
        now = time.perf_counter()
        # Publishes that were missed during a stop are skipped.
        due = now if now - due > STOPPED_SECONDS else due + 1 / per_second
        time.sleep(max(due - now, 0))


def main() -> None:
    name, port, path, *rest = sys.argv[1:]
    lines = Path(path).read_bytes().splitlines()
    if name.startswith("market_index"):
        live = LiveIndex(map(wire.order_book_from_json, lines))
        app: Starlette = create_app(live)
        if rest:
            threading.Thread(target=publish, args=(live, int(rest[0])), daemon=True).start()
    else:
        app = importlib.import_module(f"benchmarks.servers.{name}").create_app(lines)
    listener = bind("127.0.0.1", int(port))
    if name == "market_index":
        Server(app, respond=partial(find_response, app)).run([listener])
        return
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False, server_header=False
    )
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
