"""What a plan for very many readers is made of: what more safety costs, a leaf node on the way, a cache in front."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlencode

from market_index import wire
from market_index_feeds import open_store
from tests.benchmarks.books import book
from tests.benchmarks.distributed import OURS, seen_after
from tests.benchmarks.figures import Row
from tests.nats import Server, cluster, opened, served, spare_port

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).with_name("market-index")


def rows(*, quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
        yield from safety(Path(folder), 100 if quick else 1_000)
        yield leaf(Path(folder), 100 if quick else 1_000)
        if shutil.which("wrk"):
            yield from cached(Path(folder), 1 if quick else 5)


def safety(folder: Path, times: int) -> Iterator[Row]:
    """One publish after the other, each acknowledged before the next."""
    with ExitStack() as stack:
        one = stack.enter_context(served(folder / "one"))
        synced = Server(folder / "synced")
        synced.stored = synced.stored.replace("}", ", sync_interval: always }")
        stack.callback(synced.kill)
        synced.start()
        synced.wait()
        three = stack.enter_context(cluster(folder / "three"))
        urls = {
            "one server": one.url,
            "one server, sync_interval always": synced.url,
            "three servers, three replicas": three[0].url,
        }
        numbers = random.Random(9)
        made = [book(numbers, 50) for _ in range(20)]
        for name, url in urls.items():
            with opened(f"{url}/books") as store:
                store.publish(*made)
                seconds = []
                for number in range(times):
                    begun = time.perf_counter()
                    store.publish(made[number % 20])
                    seconds.append(time.perf_counter() - begun)
                percentiles = quantiles(seconds, n=100)
                begun = time.perf_counter()
                for _ in range(times // 20):
                    store.publish(*made)
                each = (time.perf_counter() - begun) / (times // 20 * 20)
            yield Row(f"publish a book of 6 kB to {name}: p50", percentiles[49] * 1e3, "ms", "")
            yield Row(f"publish a book of 6 kB to {name}: p99", percentiles[98] * 1e3, "ms", "")
            yield Row(f"publish books of 6 kB to {name}, 20 a call, each", each * 1e3, "ms", "")


def leaf(folder: Path, times: int) -> Row:
    """A server without storage of its own, to which replicas connect, and which is connected to the one that has."""
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
        numbers = random.Random(5)
        held = [book(numbers, 50) for _ in range(20)]
        with open_store(f"{hub.url}/books") as store:
            store.publish(*held)
            time.sleep(2)
            after = seen_after(
                f"{far.url}/books", OURS, times, lambda one, spot: store.publish(one.apply(spot=spot)), held
            )
    return Row("from a publish to where a replica behind a leaf node shows it: p50", median(after), "ms", "")


NGINX = """
user {user};
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
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
}}
"""


def cached(folder: Path, seconds: int) -> Iterator[Row]:
    """One replica, its answers fresh for a second, by itself and behind a cache; the client on the other core."""
    numbers = random.Random(5)
    one = book(numbers, 50)
    lines = folder / "books.ndjson"
    lines.write_bytes(wire.order_book_to_json(one) + b"\n")
    path = f"/trading-view/order-book?{urlencode({'base': one.pair.base, 'quote': one.pair.quote})}"
    with replica(lines, folder) as port:
        etag = etag_of(port, path)
        for name, header in (("", None), (", 304", f"If-None-Match: {etag}")):
            yield Row(f"one replica{name}", rate(port, path, seconds, header), "/s", "")
        if nginx := shutil.which("nginx"):
            front = spare_port()
            configuration = folder / "nginx.conf"
            configuration.write_text(NGINX.format(user=getuser(), folder=folder, replica=port, port=front))
            with subprocess.Popen([nginx, "-c", configuration, "-p", folder]) as process:
                try:
                    time.sleep(1)
                    for name, header in (("", None), (", 304", f"If-None-Match: {etag_of(front, path)}")):
                        yield Row(f"a cache in front of it (nginx){name}", rate(front, path, seconds, header), "/s", "")
                finally:
                    process.terminate()


@contextmanager
def replica(lines: Path, folder: Path) -> Iterator[int]:
    port = spare_port()
    said = folder / "said"
    with said.open("wb") as file:
        process = subprocess.Popen(
            [COMMAND, "serve", lines, "--port", str(port), "--max-age", "1"], stderr=file, stdout=file
        )
    try:
        while "listening" not in said.read_text():
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def etag_of(port: int, path: str) -> str:
    said = subprocess.run(
        ["curl", "-si", f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True, check=True
    ).stdout
    (line,) = [line for line in said.splitlines() if line.lower().startswith("etag:")]
    return line.partition(":")[2].strip()


def rate(port: int, path: str, seconds: int, header: str | None) -> float:
    command = ["wrk", "-t1", "-c32", f"-d{seconds}s", *(["-H", header] if header else [])]
    said = subprocess.run([*command, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True, check=True)
    assert "Non-2xx" not in said.stdout or header, json.dumps(said.stdout)
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("Requests/sec:")]
    return float(line.split()[1])
