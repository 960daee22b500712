"""Requests per second over a real socket: one server at a time on one core, wrk on the other core.

wrk has one thread and 32 keep-alive connections, 4 for the pair list of 10,000. The bytes of each response are compared
first. All Python servers run on uvicorn with httptools and uvloop.

- *uvicorn with prebuilt bytes*: an ASGI app that looks at nothing but the query.
- *FastAPI with pydantic*: looks the pair up, and validates and encodes each response, as in its tutorial.
- *without our connections*: the same app on uvicorn's own connections, as a user mounts it.
- *no publishes*: the same requests while nothing changes. Otherwise a thread publishes a random pair at a time.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from benchmarks.books import book, books, order_book_path
from benchmarks.http_servers import CONNECTIONS, Contender, Target, interleaved_rates, serving
from benchmarks.measure import Group, Row, compared
from market_index import MarketIndex, OrderBook, wire
from tests.nats import spare_port

PUBLISHES: Final = 1_000

BOOK_50, BOOK_500 = "order book of 50 levels a side", "order book of 500 levels a side"
LIST_10K = "pair list of 10,000"
LIST_CONNECTIONS: Final = 4
"""For long responses. Some peers encode for all connections before they send the first byte."""

MIXED: Final = f"19 books to one pair list of 10,000, {PUBLISHES:,} publishes per second"

OURS: Final = "market_index"
RAW: Final = "uvicorn with prebuilt bytes"
FASTAPI: Final = "FastAPI with pydantic"
MOUNTED: Final = "without our connections"
QUIET, PUBLISHING = "no publishes", "publishes"


@frozen
class Data:
    """The books that every contender serves, in files, and the targets."""

    folder: Path

    @cached_property
    def small(self) -> OrderBook:
        return book(random.Random(1), 50)

    @cached_property
    def large(self) -> OrderBook:
        return book(random.Random(2), 500)

    def index(self, size: int) -> MarketIndex:
        # In ledger order, because peers list pairs in the given order.
        return MarketIndex([self.small, self.large, *books(size - 2, 0, seed=2)])

    def lines(self, size: int) -> Path:
        """Return a file with a book per line."""
        file = self.folder / f"{size}.ndjson"
        if not file.exists():
            texts = map(wire.order_book_to_json, self.index(size).values())
            file.write_bytes(b"".join(text + b"\n" for text in texts))
        return file

    def book(self, name: str, one: OrderBook) -> Target:
        return Target(name, order_book_path(one), wire.order_book_to_json(one))

    def listed(self, name: str, size: int) -> Target:
        body = wire.pair_list_to_json(self.index(size).pair_list())
        return Target(
            name, "/trading-view/pair-list", body, connections=CONNECTIONS if size < 10_000 else LIST_CONNECTIONS
        )

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        return self.book(BOOK_50, self.small), self.book(BOOK_500, self.large), self.listed(LIST_10K, 10_000)

    def python(self, name: str, server: str, targets: tuple[Target, ...], size: int = 10_000) -> Contender:
        command = (sys.executable, "-m", "benchmarks.servers", server, "PORT", str(self.lines(size)))
        return Contender(name, command, targets)


def frameworks(data: Data) -> list[Contender]:
    servers = {OURS: "market_index", RAW: "raw", MOUNTED: "market_index_mounted", FASTAPI: "fastapi_pydantic"}
    return [data.python(name, server, data.targets) for name, server in servers.items()]


def encodings(data: Data) -> list[Contender]:
    """Return contenders that differ only in the fields of the request."""
    zipped = tuple(evolve(one, header="Accept-Encoding: gzip") for one in data.targets)
    known = tuple(evolve(one, expected=b"", header="If-None-Match: *") for one in data.targets)
    of_kinds = {"gzip": zipped, "plain": data.targets, "304": known}
    return [data.python(name, "market_index", targets) for name, targets in of_kinds.items()]


def publishing(data: Data) -> list[Contender]:
    script = data.folder / "mixed.lua"
    book_50, _, listed = data.targets
    script.write_text(
        "local asked = 0\n"
        "request = function()\n"
        "  asked = asked + 1\n"
        f'  return wrk.format("GET", asked % 20 == 0 and "{listed.path}" or "{book_50.path}")\n'
        "end\n"
    )
    mixed = evolve(book_50, name=MIXED, script=script)
    targets = mixed, evolve(mixed, name=f"{MIXED}, gzip", header="Accept-Encoding: gzip")
    quiet = data.python(QUIET, "market_index", targets)
    changing = evolve(
        quiet,
        name=PUBLISHING,
        port=spare_port(),
        command=(*quiet.command, str(PUBLISHES)),
        targets=tuple(evolve(one, expected=None) for one in targets),
    )
    return [changing, quiet]


def rates(contenders: Callable[[Data], list[Contender]], rounds: int) -> Iterator[Row]:
    """Measure servers that take turns. The first one is ours, the others are its peers."""
    if not shutil.which("wrk"):
        yield Row(contenders.__name__, "/s", note="not measured: wrk is not installed (Debian: apt-get install wrk)")
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ours, *peers = contenders(Data(Path(folder)))
        found = interleaved_rates([stack.enter_context(serving(one)) for one in (ours, *peers)], rounds)
    for target in ours.targets:
        for peer in peers:
            work = target.name if ours.name == OURS else f"{target.name}: {ours.name}"
            yield compared(work, "/s", found[target.name], ours.name, peer.name)


def groups(*, quick: bool) -> dict[str, Group]:
    rounds = 5 if quick else 15
    return {one.__name__: partial(rates, one, rounds) for one in (frameworks, encodings, publishing)}
