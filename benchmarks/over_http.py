"""Requests per second over a real socket: one server at a time on one core, wrk on the other core."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from benchmarks.books import book, books
from benchmarks.figures import Row, alone, compared, goal, not_measured
from benchmarks.http_servers import (
    CONNECTIONS,
    COUNTED,
    ROOT,
    Contender,
    Rates,
    Target,
    interleaved_rates,
    missing,
    serving,
)
from benchmarks.nginx import configuration
from benchmarks.report import Group
from market_index import MarketIndex, OrderBook, wire
from tests.nats import spare_port

PUBLISHES: Final = 1_000

BOOK_50, BOOK_500 = "order book of 50 levels a side", "order book of 500 levels a side"
LIST_1K, LIST_10K = "pair list of 1,000", "pair list of 10,000"
LIST_CONNECTIONS: Final = 4
"""For long responses. Some peers encode for all connections before they send the first byte."""

MIXED: Final = f"19 books to one pair list of 10,000, {PUBLISHES:,} publishes per second"
MIXED_GZIP: Final = f"{MIXED}, gzip"
ROUTE: Final = "/trading-view"

OURS: Final = "market_index"
RAW: Final = "uvicorn with prebuilt bytes"
GO, GO_PREBUILT = "Go encoding", "Go with prebuilt bytes"
NGINX, GRANIAN = "nginx with a static file", "granian with the same app"
FASTAPI, LITESTAR, STARLETTE = "FastAPI with pydantic", "Litestar with msgspec", "Starlette encoding"
ROUTED: Final = "without the fast path"
QUIET, PUBLISHING = "no publishes", "publishes"

TITLE: Final = "Over HTTP"
ABOUT: Final = f"""
wrk has one thread and {CONNECTIONS} keep-alive connections ({LIST_CONNECTIONS} for the pair list of 10,000) on one
core; one process serves on the other, and the other servers are stopped. The bytes of each response are compared
first. The peers are in [benchmarks/servers](../benchmarks/servers).

- *{RAW}*: an ASGI app that looks at nothing but the query. All Python servers run on the same uvicorn, ours with the
  connections of the command, except *{GRANIAN}*.
- *{NGINX}* and *{GO_PREBUILT}* send bytes that never change, and have no index.
- *{FASTAPI}*, *{LITESTAR}*, *{STARLETTE}* and *{GO}* look the pair up and encode each response.
- *{ROUTED}*: the same app, each request through the router of Starlette.
- *{QUIET}*: the same requests while nothing changes. Otherwise a thread publishes a random pair at a time.
"""


@frozen
class Comparison:
    """A row: a target of ours against one of a peer."""

    target: str
    peer: str
    at_least: float | None = None
    headline: bool = False
    ours: str = OURS
    peer_target: str = ""

    def row(self, rates: Rates) -> Row:
        ours, theirs = rates[self.target][self.ours], rates[self.peer_target or self.target][self.peer]
        rounds = {"ours": ours, self.label: theirs}
        return compared(self.target, "/s", rounds, "ours", self.label, at_least=self.at_least, headline=self.headline)

    def not_measured(self, reason: str) -> Row:
        return not_measured(Row(self.target, "/s", self.label, goal=goal(self.at_least, None)), reason)

    @property
    def label(self) -> str:
        return self.peer_target or self.peer


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
        path = f"{ROUTE}/order-book?base={one.pair.base}&quote={one.pair.quote}"
        return Target(name, path, wire.order_book_to_json(one))

    def listed(self, name: str, size: int) -> Target:
        body = wire.pair_list_to_json(self.index(size).pair_list())
        return Target(name, f"{ROUTE}/pair-list", body, connections=CONNECTIONS if size < 10_000 else LIST_CONNECTIONS)

    @cached_property
    def books(self) -> tuple[Target, ...]:
        return self.book(BOOK_50, self.small), self.book(BOOK_500, self.large)

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        return (*self.books, self.listed(LIST_10K, 10_000))

    def python(self, name: str, server: str, targets: tuple[Target, ...], size: int = 10_000) -> Contender:
        command = (sys.executable, "-m", "benchmarks.servers", server, "PORT", str(self.lines(size)))
        return Contender(name, command, targets)


def all_three(peer: str, *goals: float | None, headline: str = "") -> list[Comparison]:
    targets = (BOOK_50, BOOK_500, LIST_10K)
    return [
        Comparison(target, peer, at_least, target == headline)
        for target, at_least in zip(targets, goals or (None, None, None), strict=True)
    ]


def frameworks(data: Data) -> list[Contender]:
    servers = {
        RAW: "raw",
        OURS: "market_index",
        ROUTED: "market_index_routed",
        FASTAPI: "fastapi_pydantic",
        LITESTAR: "litestar_msgspec",
        STARLETTE: "starlette_each_time",
    }
    return [data.python(name, server, data.targets) for name, server in servers.items()]


def small_list(data: Data) -> list[Contender]:
    targets = (data.listed(LIST_1K, 1_000),)
    return [data.python(name, server, targets, 1_000) for name, server in ((RAW, "raw"), (OURS, "market_index"))]


def mounted(data: Data) -> list[Contender]:
    targets = tuple(evolve(one, name=f"under /api/v1: {one.name}", path=f"/api/v1{one.path}") for one in data.books)
    return [data.python(name, f"{server}_mounted", targets) for name, server in ((RAW, "raw"), (OURS, "market_index"))]


def conditional(data: Data) -> list[Contender]:
    listed = data.targets[2]
    zipped = evolve(listed, name=f"{LIST_10K}, gzip", headers=(("Accept-Encoding", "gzip"),))
    known = evolve(listed, name=f"{LIST_10K}, 304", expected=b"", headers=(("If-None-Match", "*"),))
    return [data.python(OURS, "market_index", (listed, zipped, known))]


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
    targets = (mixed, evolve(mixed, name=MIXED_GZIP, headers=(("Accept-Encoding", "gzip"),)))
    quiet = data.python(QUIET, "market_index", targets)
    changing = evolve(
        quiet,
        name=PUBLISHING,
        port=spare_port(),
        command=(*quiet.command, str(PUBLISHES)),
        targets=tuple(evolve(one, expected=None) for one in targets),
        counter=data.folder / "published",
    )
    return [quiet, changing]


def go(data: Data) -> list[Contender]:
    contenders = [data.python(OURS, "market_index", data.targets)]
    environment = os.environ | {"GOCACHE": str(data.folder / "cache"), "GOFLAGS": "-mod=mod"}
    for name, source in ((GO, "encoding_each_time.go"), (GO_PREBUILT, "prebuilt.go")):
        program = data.folder / source.removesuffix(".go")
        command = ["go", "build", "-o", str(program), str(ROOT / "benchmarks/servers" / source)]
        subprocess.run(command, env=environment, check=True)
        contenders.append(Contender(name, (str(program), "PORT", str(data.lines(10_000))), data.targets))
    return contenders


def granian(data: Data) -> list[Contender]:
    options = (
        "--interface asgi --loop uvloop --http 1 --workers 1 --runtime-threads 1 --no-ws --no-access-log --factory"
    )
    command = (
        sys.executable,
        "-m",
        "granian",
        "--port",
        "PORT",
        *options.split(),
        "benchmarks.servers.factory:create",
    )
    environment = {"BOOKS": str(data.lines(10_000))}
    return [
        data.python(OURS, "market_index", data.targets),
        Contender(GRANIAN, command, data.targets, environment),
    ]


NGINX_HTTP: Final = """
    sendfile on;
    tcp_nopush on;
    open_file_cache max=100;
    keepalive_requests 1000000000;
    default_type application/json;
    map_hash_bucket_size 256;
    map $arg_base $book {{ "{small}" small; "{large}" large; }}
    server {{
        listen 127.0.0.1:{port};
        root {folder};
        location = /trading-view/order-book {{ try_files /$book =404; }}
        location = /trading-view/pair-list {{ try_files /list =404; }}
    }}
"""


def nginx(data: Data) -> list[Contender]:
    for name, target in zip(("small", "large", "list"), data.targets, strict=True):
        (data.folder / name).write_bytes(target.expected or b"")
    port, file = spare_port(), data.folder / "nginx.conf"
    small, large = data.small.pair.base, data.large.pair.base
    http = NGINX_HTTP.format(folder=data.folder, port=port, small=small, large=large)
    file.write_text(configuration(data.folder, http))
    command = ("nginx", "-c", str(file), "-p", str(data.folder))
    return [data.python(OURS, "market_index", data.targets), Contender(NGINX, command, data.targets, port=port)]


@frozen
class Compared:
    """A group: the servers that take turns, and their rows."""

    contenders: Callable[[Data], list[Contender]]
    comparisons: Sequence[Comparison]
    rounds: int
    needs: tuple[str, ...] = ()

    def __call__(self) -> Iterator[Row]:
        if reason := missing("wrk", *self.needs):
            yield from (one.not_measured(reason) for one in self.comparisons)
            return
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            contenders = self.contenders(Data(Path(folder)))
            rates = interleaved_rates([stack.enter_context(serving(one)) for one in contenders], self.rounds)
        yield from (one.row(rates) for one in self.comparisons)
        for one in contenders:
            if one.counter:
                yield alone(f"{MIXED}: publishes reached", "/s", rates[COUNTED][one.name])


def groups(*, quick: bool) -> dict[str, Group]:
    group = partial(Compared, rounds=11 if quick else 31)
    return {
        "frameworks": group(
            frameworks,
            [
                *all_three(RAW, 0.95, 0.85, 1, headline=BOOK_50),
                *all_three(FASTAPI, 4, 12, 10, headline=BOOK_50),
                *all_three(LITESTAR, headline=BOOK_50),
                *all_three(STARLETTE),
                *all_three(ROUTED, 1.1, None, None),
            ],
        ),
        "go": group(go, [*all_three(GO, 1, 3, None), *all_three(GO_PREBUILT, headline=BOOK_50)], needs=("go",)),
        "nginx": group(nginx, all_three(NGINX, headline=BOOK_50), needs=("nginx",)),
        "granian": group(granian, all_three(GRANIAN, headline=BOOK_50)),
        "small_list": group(small_list, [Comparison(LIST_1K, RAW, 0.95)]),
        "mounted": group(mounted, [Comparison(f"under /api/v1: {name}", RAW, 0.85) for name in (BOOK_50, BOOK_500)]),
        "conditional": group(
            conditional,
            [
                Comparison(f"{LIST_10K}, gzip", OURS, 2.5, peer_target=LIST_10K),
                Comparison(f"{LIST_10K}, 304", OURS, 8, peer_target=LIST_10K),
            ],
        ),
        "publishing": group(
            publishing,
            [
                Comparison(MIXED, QUIET, 0.85, headline=True, ours=PUBLISHING),
                Comparison(MIXED_GZIP, QUIET, 0.4, ours=PUBLISHING),
            ],
        ),
    }
