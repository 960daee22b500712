"""Costs of deployments for many readers: more safety, a leaf node, a cache in front."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from benchmarks.books import books
from benchmarks.figures import Row, alone, not_measured, percentile
from benchmarks.http_servers import missing
from benchmarks.nginx import configuration
from benchmarks.report import Group
from benchmarks.seen import ROOT, publish_spot, seen_after
from benchmarks.whole_path import serving
from market_index import OrderBook, wire
from market_index_feeds import open_store
from tests.nats import Server, cluster, served, spare_port
from tests.waiting import eventually

ONE, SYNCED, THREE = "one server", "one server, sync_interval always", "three servers, three replicas"
REPLICA, CACHE = "one replica", "a cache in front of it (nginx)"

TITLE: Final = "Many machines"
ABOUT: Final = """
All servers of a cluster run on this machine: the rows show the work, not the network. `market-index serve --max-age 1`
is measured by itself and behind nginx as a cache, with and without `If-None-Match`.
"""


def groups(*, quick: bool) -> dict[str, Group]:
    times = 100 if quick else 1_000
    return {
        "safety": in_folder(partial(safety, times=times)),
        "leaf": in_folder(partial(leaf, times=times)),
        "cache": in_folder(partial(cached, rounds=3, seconds=1 if quick else 3)),
    }


def in_folder(group: Callable[[Path], Iterator[Row]]) -> Group:
    def rows() -> Iterator[Row]:
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
            yield from group(Path(folder))

    return rows


def safety(folder: Path, *, times: int) -> Iterator[Row]:
    """Measure publishes in sequence, each acknowledged before the next."""
    with ExitStack() as stack:
        one = stack.enter_context(served(folder / "one"))
        synced = Server(folder / "synced")
        synced.stored = synced.stored.replace("}", ", sync_interval: always }")
        stack.callback(synced.kill)
        synced.start()
        synced.wait()
        three = stack.enter_context(cluster(folder / "three"))
        held = books(20, 50, seed=9)
        for name, url in {ONE: one.url, SYNCED: synced.url, THREE: three[0].url}.items():
            single, batched = published(f"{url}/books", held, times)
            for percent in (50, 99):
                yield alone(
                    f"publish a book of 6 kB to {name}: p{percent}", "ms", [percentile(single, percent)], scale=1e3
                )
            yield alone(f"publish books of 6 kB to {name}, 20 a call, each", "ms", batched, scale=1e3)


def published(url: str, held: list[OrderBook], times: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each publish, and of each book in publishes of 20 books."""
    with open_store(url) as store:
        store.publish(*held)
        single = [timed(partial(store.publish, held[number % 20])) for number in range(times)]
        return single, [timed(partial(store.publish, *held)) / 20 for _ in range(times // 20)]


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def leaf(folder: Path, *, times: int) -> Iterator[Row]:
    """Measure replicas that connect to a server without storage, which is connected to the server with the bucket."""
    port = spare_port()
    hub = Server(folder / "hub", more=f'leafnodes {{ listen: "127.0.0.1:{port}" }}')
    hub.stored = hub.stored.replace("{", "{ domain: hub,", 1)
    remote = f'leafnodes {{ remotes: [ {{ url: "nats://127.0.0.1:{port}" }} ] }}'
    far = Server(folder / "leaf", more=f'{remote}\ndefault_js_domain {{ "$G": "hub" }}', jetstream=False)
    with ExitStack() as stack:
        for server in (hub, far):
            stack.callback(server.kill)
            server.start()
            server.wait()
        eventually(lambda: "Leafnode connection created" in far.log)
        held = books(20, 50, seed=5)
        with open_store(f"{hub.url}/books") as store:
            store.publish(*held)
            after = seen_after(f"{far.url}/books", times, partial(publish_spot, store), held, gap=0.004)
    yield alone("from a publish to where a replica behind a leaf node has it: p50", "ms", [percentile(after, 50)])


NGINX_HTTP: Final = """
    proxy_cache_path {folder}/cache keys_zone=books:10m;
    upstream replica {{ server 127.0.0.1:{replica}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://replica;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_cache books;
            proxy_cache_revalidate on;
            proxy_cache_lock on;
            proxy_cache_use_stale updating error timeout;
        }}
    }}
"""


def cached(folder: Path, *, rounds: int, seconds: int) -> Iterator[Row]:
    """Measure one replica with responses that are fresh for a second, alone and behind a cache."""
    works = [f"{server}{answer}" for server in (REPLICA, CACHE) for answer in ("", ", 304")]
    if reason := missing("wrk", "nginx"):
        yield from (not_measured(Row(work, "/s"), reason) for work in works)
        return
    (one,) = books(1, 50, seed=5)
    lines = folder / "books.ndjson"
    lines.write_bytes(wire.order_book_to_json(one) + b"\n")
    path = f"/trading-view/order-book?{urlencode({'base': one.pair.base, 'quote': one.pair.quote})}"
    with serving(str(lines), folder, "--max-age", "1") as port, cache(folder, port, path) as front:
        rates: dict[str, list[float]] = {work: [] for work in works}
        for _ in range(rounds):
            for server, of in ((REPLICA, port), (CACHE, front)):
                header = f"If-None-Match: {etag_of(of, path)}"
                rates[server].append(rate(of, path, seconds))
                rates[f"{server}, 304"].append(rate(of, path, seconds, "-H", header))
    for work, values in rates.items():
        yield alone(work, "/s", values)


@contextmanager
def cache(folder: Path, replica: int, path: str) -> Iterator[int]:
    port, file = spare_port(), folder / "nginx.conf"
    file.write_text(configuration(folder, NGINX_HTTP.format(folder=folder, replica=replica, port=port)))

    def answers() -> bool:
        try:
            return bool(etag_of(port, path))
        except OSError:
            return False

    command = ["nginx", "-c", str(file), "-p", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(answers)
            yield port
        finally:
            process.terminate()


def etag_of(port: int, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    etag = connection.getresponse().headers["etag"]
    connection.close()
    assert etag
    return etag


def rate(port: int, path: str, seconds: int, *options: str) -> float:
    command = ["wrk", "-t1", "-c32", f"-d{seconds}s", *options, f"http://127.0.0.1:{port}{path}"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in output, output
    (line,) = [line for line in output.splitlines() if line.startswith("Requests/sec:")]
    return float(line.split()[1])
