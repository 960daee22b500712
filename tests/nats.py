"""Real NATS servers and clusters on spare local ports, and requests to them by a plain client."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import nats
import trustme
from nats.aio.client import Client
from nkeys import PREFIX_BYTE_ACCOUNT, PREFIX_BYTE_OPERATOR, PREFIX_BYTE_USER, encode_seed, from_seed

from market_index_feeds import Store, StoreError, open_store
from market_index_feeds.nats import BucketAddress, NatsStore
from tests.waiting import DEADLINE_SECONDS, eventually

T = TypeVar("T")

_RELOADED = "Reloaded server configuration"

PREFIXES = {
    "operator": PREFIX_BYTE_OPERATOR,
    "system": PREFIX_BYTE_ACCOUNT,
    "account": PREFIX_BYTE_ACCOUNT,
    "user": PREFIX_BYTE_USER,
}
"""The kinds of the keys of an operator, of two accounts, and of a user of the second one."""

BINARY = Path(sys.executable).with_name("nats-server")


PORTS = range(20_000, 32_768)
"""Below the ports of outgoing connections: a client that retries a port without a listener could connect to itself."""


def spare_port() -> int:
    while True:
        port = random.choice(PORTS)
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port))):
            return port


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
        configuration = self._configure()
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen([*self.prefix, BINARY, "-c", configuration], stdout=log, stderr=log)

    def reload(self) -> None:
        """Let the running server read its configuration again. Meanwhile it may reject connections."""
        before = self.log.count(_RELOADED)
        self._configure()
        self.send(signal.SIGHUP)
        eventually(lambda: self.log.count(_RELOADED) > before)

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

    def empty(self) -> None:
        """Delete all stored data."""
        shutil.rmtree(self.folder / self.name)

    def _configure(self) -> Path:
        self.folder.mkdir(exist_ok=True)
        configuration = self.folder / f"{self.name}.conf"
        configuration.write_text(f'server_name: {self.name}\nlisten: "{self.address}"\n{self.stored}\n{self.more}\n')
        return configuration


def store_of(url: str, *, wait: float = 5) -> NatsStore:
    """Open a bucket as a store of its own class."""
    return NatsStore(BucketAddress.parse(url), wait=wait)


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


def ask(server: Server, subject: str, body: object = None, timeout: float = 5) -> dict[str, Any]:
    """Return the reply to a request to the JetStream API."""

    async def work(client: Client) -> dict[str, Any]:
        reply = await client.request(f"$JS.API.{subject}", json.dumps(body or {}).encode(), timeout=timeout)
        return dict(json.loads(reply.data))

    return plain(server, work)


def request(server: Server, subject: str, body: object = None) -> dict[str, Any]:
    """Send a request to the JetStream API, as the command `nats` does, and return the reply."""
    answer = ask(server, subject, body)
    assert "error" not in answer, answer
    return answer


def create(server: Server, bucket: str, **settings: object) -> None:
    """Create an ordinary key-value bucket with these settings, as `nats stream add` does."""
    stream = {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "max_msgs_per_subject": 1, "discard": "new"}
    request(server, f"STREAM.CREATE.KV_{bucket}", stream | settings)


def edit(server: Server, bucket: str, **settings: object) -> None:
    """Change settings of a bucket, as `nats stream edit` does."""
    config = request(server, f"STREAM.INFO.KV_{bucket}")["config"]
    request(server, f"STREAM.UPDATE.KV_{bucket}", config | settings)


def delete(server: Server, bucket: str) -> None:
    request(server, f"STREAM.DELETE.KV_{bucket}")


def leader_of(server: Server, bucket: str) -> str:
    """Return the name of the server that leads a bucket; empty if there is no leader."""
    return str(_cluster_of(server, bucket).get("leader", ""))


def current_of(server: Server, bucket: str) -> set[str]:
    """Return the names of the servers that have the whole bucket, as reported by its leader."""
    cluster = _cluster_of(server, bucket)
    replicas = cluster.get("replicas", [])
    return {cluster.get("leader", "")} | {one["name"] for one in replicas if one["current"] and not one.get("lag")}


def length_of(server: Server, bucket: str) -> int:
    """Return the number of messages that a bucket has stored."""
    return int(request(server, f"STREAM.INFO.KV_{bucket}")["state"]["last_seq"])


def _cluster_of(server: Server, bucket: str) -> dict[str, Any]:
    """Return which servers have a bucket; empty if no server responds."""
    try:
        return dict(ask(server, f"STREAM.INFO.KV_{bucket}", timeout=1).get("cluster", {}))
    except nats.errors.Error:
        return {}


def certified(folder: Path, more: str = "") -> str:
    """Return the configuration of servers with a certificate for `localhost`, issued by a new authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    files = {"cert_file": "cert.pem", "key_file": "key.pem", "ca_file": "ca.pem"}
    named = ", ".join(f'{name}: "{folder / file}"' for name, file in files.items())
    return f"tls {{ {named}, {more} }}"


def operated(path: Path) -> str:
    """Return the configuration of servers with an operator, and write the file of credentials of one user."""
    keys = {name: from_seed(encode_seed(os.urandom(32), prefix)) for name, prefix in PREFIXES.items()}
    ids = {name: key.public_key.decode() for name, key in keys.items()}

    def token(kind: str, of: str, by: str, **claims: object) -> str:
        """Return a JSON web token: claims of one key, signed by another."""
        body = {"iss": ids[by], "sub": ids[of], "nats": {"type": kind, "version": 2, **claims}}
        text = ".".join(_base64(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body))
        return f"{text}.{_base64(keys[by].sign(text.encode()))}"

    unlimited = dict.fromkeys(["subs", "data", "payload"], -1)
    storage = dict.fromkeys(["conn", "mem_storage", "disk_storage", "streams", "consumer"], -1)
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token('user', 'user', 'account', **unlimited)}\n"
        "------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{keys['user'].seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return (
        f"operator: {token('operator', 'operator', 'operator')}\n"
        f"resolver: MEMORY\nsystem_account: {ids['system']}\nresolver_preload: {{\n"
        f"{ids['system']}: {token('account', 'system', 'operator', limits=unlimited | {'conn': -1})}\n"
        f"{ids['account']}: {token('account', 'account', 'operator', limits=unlimited | storage)}\n}}"
    )


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def opened(url: str) -> Store:
    """Open a store as soon as the servers have a leader."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return open_store(url, wait=10)
        except StoreError:
            if time.monotonic() > deadline:
                raise
