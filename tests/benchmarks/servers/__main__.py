"""Serves one contender on 127.0.0.1: `python -m tests.benchmarks.servers NAME PORT BOOKS [PUBLISHES_A_SECOND]`.

BOOKS is a file of order books, one a line. Every Python contender runs on the same uvicorn, set up alike.
"""

from __future__ import annotations

import importlib
import random
import sys
import threading
import time
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Mount

from market_index import LiveIndex, wire
from market_index_cli.server.http_server import Server, bind
from market_index_http import create_app


def publish(live: LiveIndex, a_second: int) -> None:
    """Publish so many books a second for ever, one at a time: another spot and another best bid for a random pair."""
    numbers = random.Random(1)
    pairs = list(live.current)
    due = time.perf_counter()
    while True:
        book = live.current.order_book(numbers.choice(pairs))
        spot = f"0.{numbers.randrange(10**6, 10**8):09}"
        live.publish(book.apply(bids=[(spot, numbers.randrange(1, 10**9))], spot=spot))
        due += 1 / a_second
        time.sleep(max(due - time.perf_counter(), 0))


def main() -> None:
    name, port, path, *rest = sys.argv[1:]
    lines = Path(path).read_bytes().splitlines()
    if name.startswith("market_index"):
        live = LiveIndex(map(wire.order_book_from_json, lines))
        app = create_app(live)
        if name == "market_index_routed":
            # The same app with the fast path turned off: every request goes through Starlette's routes.
            app.router.routes.insert(0, Mount("/nowhere", routes=[]))
        if rest:
            threading.Thread(target=publish, args=(live, int(rest[0])), daemon=True).start()
    else:
        app = importlib.import_module(f"tests.benchmarks.servers.{name.removesuffix('_mounted')}").create_app(lines)
    if name.endswith("_mounted"):
        app = Starlette(routes=[Mount("/api/v1", app)])
    Server(app).run([bind("127.0.0.1", int(port))])


if __name__ == "__main__":
    main()
