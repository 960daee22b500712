"""Real NATS servers and clusters on spare local ports, and requests to them by a plain client."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.aio.client import Client

from market_index import Levels, OrderBook
from market_index_feeds import Store, StoreError, open_store
from tests.feeds import made_up
from tests.waiting import DEADLINE_SECONDS, eventually

T = TypeVar("T")

BINARY = Path(sys.executable).with_name("nats-server")


PORTS = range(20_000, 32_768)
"""Below the ports of outgoing connections: a client that retries a port without a listener could connect to itself."""


def spare_port() -> int:
    while True:
        port = random.choice(PORTS)
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port))):
            return port


_RELOADED = "Reloaded server configuration"


class Server:
    """One server, which stores its data in its own folder. `prefix` is a command that runs it in another namespace."""

    def __init__(
        self,
        folder: Path,
        name: str = "one",
        more: str = "",
        *,
        jetstream: bool = True,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.name = name
        self.host = host
        self.port = spare_port()
        self.prefix = prefix
        self.stored = (
            f'jetstream {{ store_dir: "{folder / name}", max_mem: 256MB, max_file: 4GB }}' if jetstream else ""
        )
        self.more = more
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"nats://{self.address}"

    def bucket(self, name: str) -> str:
        """Return the URL of a bucket."""
        return f"{self.url}/{name}"

    @property
    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text()

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        configuration = self.configure()
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen([*self.prefix, BINARY, "-c", configuration], stdout=log, stderr=log)

    def configure(self) -> Path:
        configuration = self.folder / f"{self.name}.conf"
        configuration.write_text(
            f"""
            server_name: {self.name}
            listen: "{self.address}"
            {self.stored}
            {self.more}
            """
        )
        return configuration

    def wait(self) -> None:
        """Wait until the server accepts connections."""

        def answers() -> bool:
            assert self.process
            assert self.process.poll() is None, self.log
            try:
                with closing(socket.create_connection((self.host, self.port), timeout=1)) as connection:
                    return connection.recv(4) == b"INFO"
            except OSError:
                return False

        eventually(answers)

    def send(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def stop(self) -> None:
        """Suspend the process until SIGCONT; its connections stay open."""
        self.send(signal.SIGSTOP)
        assert self.process
        status = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "T")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(DEADLINE_SECONDS)
            self.process = None

    def reload(self, more: str) -> None:
        """Reload the server with another configuration."""
        reloads = self.log.count(_RELOADED)
        self.more = more
        self.configure()
        self.send(signal.SIGHUP)
        eventually(lambda: self.log.count(_RELOADED) > reloads)

    def empty(self) -> None:
        """Delete all stored data."""
        shutil.rmtree(self.folder / self.name)


@contextmanager
def served(folder: Path, more: str = "", *, jetstream: bool = True) -> Iterator[Server]:
    """Run a single server."""
    server = Server(folder, more=more, jetstream=jetstream)
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@contextmanager
def cluster(folder: Path, more: str = "", *, size: int = 3, jetstream: bool = True) -> Iterator[list[Server]]:
    """Run a cluster of servers. The last one reports its host name instead of its IP address."""
    routes = [spare_port() for _ in range(size)]
    all_routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    with ExitStack() as stack:
        servers = []
        for number, port in enumerate(routes):
            routed = f'cluster {{ name: "cluster", listen: "127.0.0.1:{port}", routes: [{all_routes}] }}'
            server = Server(folder, f"n{number}", f"{routed}\n{more}", jetstream=jetstream)
            if number == size - 1:
                server.more += f'\nclient_advertise: "localhost:{server.port}"'
            stack.callback(server.kill)
            server.start()
            servers.append(server)
        for server in servers:
            server.wait()
        yield servers


def name_of(bucket: str) -> str:
    """Return the name of the bucket in a URL."""
    return bucket.rpartition("/")[2]


def plain(server: Server, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run some work with a plain client of nats-py."""

    async def connected() -> T:
        client = await nats.connect(server.url, allow_reconnect=False)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(connected())


def put(server: Server, bucket: str, key: str, value: bytes, headers: dict[str, str] | None = None) -> None:
    """Store a value with a plain client of nats-py, as another program would."""

    async def work(client: Client) -> None:
        await client.jetstream().publish(f"$KV.{bucket}.{key}", value, headers=headers)

    plain(server, work)


def request(server: Server, subject: str, body: object) -> None:
    """Send a request to the JetStream API, as the command `nats` does."""

    async def work(client: Client) -> None:
        answer = json.loads((await client.request(f"$JS.API.{subject}", json.dumps(body).encode())).data)
        assert "error" not in answer, answer

    plain(server, work)


def create(server: Server, bucket: str, **settings: object) -> None:
    """Create an ordinary key-value bucket with these settings, as `nats stream add` does."""
    stream = {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "max_msgs_per_subject": 1, "discard": "new"}
    request(server, f"STREAM.CREATE.KV_{bucket}", stream | settings)


def edit(server: Server, bucket: str, **settings: object) -> None:
    """Change settings of a bucket, as `nats stream edit` does."""

    async def work(client: Client) -> None:
        config = json.loads((await client.request(f"$JS.API.STREAM.INFO.KV_{bucket}")).data)["config"]
        answer = await client.request(f"$JS.API.STREAM.UPDATE.KV_{bucket}", json.dumps(config | settings).encode())
        assert "error" not in json.loads(answer.data), answer.data

    plain(server, work)


def purge(server: Server, bucket: str) -> None:
    async def work(client: Client) -> None:
        await client.jetstream().purge_stream(f"KV_{bucket}")

    plain(server, work)


def delete(server: Server, bucket: str) -> None:
    async def work(client: Client) -> None:
        await client.jetstream().delete_stream(f"KV_{bucket}")

    plain(server, work)


def leader_of(server: Server, bucket: str) -> str:
    """Return the name of the server that leads a bucket; empty if there is no leader."""
    return str(_stream_info(server, bucket).get("cluster", {}).get("leader", ""))


def current_of(server: Server, bucket: str) -> set[str]:
    """Return the names of the servers that have the whole bucket, as reported by its leader."""
    cluster = _stream_info(server, bucket).get("cluster", {})
    replicas = cluster.get("replicas", [])
    return {cluster.get("leader", "")} | {one["name"] for one in replicas if one["current"] and not one.get("lag")}


def length_of(server: Server, bucket: str) -> int:
    """Return the number of messages that a bucket has stored."""
    return int(_stream_info(server, bucket, timeout=5)["state"]["last_seq"])


def _stream_info(server: Server, bucket: str, timeout: float = 1) -> dict[str, Any]:
    """Return the information on the stream of a bucket; empty if no server responds."""

    async def work(client: Client) -> dict[str, Any]:
        try:
            answer = await client.request(f"$JS.API.STREAM.INFO.KV_{bucket}", timeout=timeout)
        except nats.errors.Error:
            return {}
        return dict(json.loads(answer.data))

    return plain(server, work)


def noise(number: int) -> OrderBook:
    """Return a book of about 100 kB that does not compress well."""
    return OrderBook(made_up.pair(1000 + number), bids=_noisy_bids(), spot="1")


@cache
def _noisy_bids() -> Levels:
    digests = [int.from_bytes(hashlib.blake2b(str(number).encode(), digest_size=11).digest()) for number in range(3000)]
    levels = [(f"0.{digest:028}"[:30], digest % 2**64 + 1) for digest in digests]
    return OrderBook.from_levels(made_up.pair(1000), bids=levels).bids


def opened(url: str) -> Store:
    """Open a store as soon as the servers have a leader."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return open_store(url, wait=10)
        except StoreError:
            if time.monotonic() > deadline:
                raise
