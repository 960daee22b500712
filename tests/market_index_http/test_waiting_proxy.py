"""A real nginx with the file docs/deploy/nginx.conf: TLS, limits, the cache, and requests that wait."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
import trustme
from anyio import to_thread

from benchmarks.nginx import configuration
from market_index import Freshness, LiveIndex
from market_index_cli.server.http_server import Server
from market_index_http import create_app
from tests.market_index_http.books import book, fetch, numbered_pair, target
from tests.service import Client, served
from tests.waiting import DEADLINE_SECONDS, eventually

NGINX = shutil.which("nginx") or ""
FILE = Path(__file__).parents[2] / "docs" / "deploy" / "nginx.conf"

pytestmark = pytest.mark.skipif(not NGINX, reason="nginx is not installed: apt-get install nginx-light")


class SecureClient(Client):
    """A client with one connection by TLS, which checks the certificate."""

    def __init__(self, port: int, authority: trustme.CA) -> None:
        super().__init__(port)
        self.another: Callable[[], SecureClient] = lambda: SecureClient(port, authority)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        self.socket = context.wrap_socket(self.socket, server_hostname="books.example")


def replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@contextmanager
def proxied(folder: Path, upstream: int, *, rate: str = "50r/s") -> Iterator[SecureClient]:
    """Run nginx with the file, on a free port and in a folder, with a limit of requests. Yield a client of it."""
    authority = trustme.CA()
    certificate = authority.issue_cert("books.example")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "books.pem")
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = replaced(FILE.read_text(), "listen 443", f"listen 127.0.0.1:{port}")
    text = replaced(text, "server_name books.example;", "server_name books.example test;")
    text = replaced(text, "127.0.0.1:8000", f"127.0.0.1:{upstream}")
    text = replaced(text, "/var/cache/nginx-market-index", f"{folder}/cache")
    text = replaced(text, "rate=50r/s", f"rate={rate}")
    text = re.sub(r"/etc/nginx/books\.(pem|key)", f"{folder}/books.pem", text)
    (folder / "nginx.conf").write_text(configuration(folder, text))
    with subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-p", folder]) as nginx:
        try:
            eventually(lambda: answers(port))
            with closing(SecureClient(port, authority)) as client:
                yield client
        finally:
            nginx.terminate()


def answers(port: int) -> bool:
    try:
        Client(port).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("max_age", [None, 3600])
def test_requests_wait_behind_nginx_also_if_it_caches(tmp_path: Path, max_age: int | None):
    live = LiveIndex([book(1, 1, "1")])
    app = create_app(live, max_wait=60, max_age=max_age)
    path = target(numbered_pair(1))
    with (
        served(app, Server(app, on_shutdown=app.end_waits)) as service,
        ThreadPoolExecutor(1) as threads,
        proxied(tmp_path, service.port) as client,
    ):
        etag = fetch(client, path).headers["etag"]
        answer = fetch(client, path, if_none_match=etag, prefer="wait=1")
        assert (answer.status, answer.headers["preference-applied"]) == (304, "wait=1")
        waiting = threads.submit(fetch, client, path, if_none_match=etag, prefer="wait=50")
        eventually(lambda: app._waits._watches)
        live.publish(book(1, 1, "2"))
        assert waiting.result(DEADLINE_SECONDS).json["spot"] == "2"
        # The cache answers only with --max-age.
        assert fetch(client, path).json["spot"] == ("2" if max_age is None else "1")


def test_the_cache_of_nginx_keeps_freshness_no_longer_than_max_age(tmp_path: Path):
    live = LiveIndex([book(1, 1, "1")])
    path = target(numbered_pair(1))
    app = create_app(live, max_age=1)
    with served(app) as service, proxied(tmp_path, service.port, rate="10000r/s") as client:
        seen: set[str] = set()

        def freshness_advances() -> bool:
            # A heartbeat: the body stays the same.
            live.update((), freshness=Freshness(None, datetime.now(UTC)))
            # nginx closes a connection after 1,000 requests.
            with closing(client.another()) as one:
                answer = fetch(one, path)
            assert answer.headers["cache-control"] == "no-cache"
            seen.add(answer.headers["market-index-published-at"])
            return len(seen) >= 3

        eventually(freshness_advances)
        assert fetch(client, path, if_none_match=fetch(client, path).headers["etag"]).status == 304


@pytest.mark.parametrize("max_age", [None, 3600])
def test_simultaneous_requests_do_not_wait_for_each_other(tmp_path: Path, max_age: int | None):
    """Each of the requests that are in flight reaches the server, where all wait for the others."""
    together = threading.Barrier(3)
    inner = create_app(LiveIndex([book(1, 1, "1")]), max_age=max_age)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await to_thread.run_sync(together.wait, DEADLINE_SECONDS)
        await inner(scope, receive, send)

    path = target(numbered_pair(1))
    with served(app) as service, proxied(tmp_path, service.port) as client, ThreadPoolExecutor(3) as threads:
        clients = [client, client.another(), client.another()]
        answers = list(threads.map(lambda one: fetch(one, path), clients))
        assert [answer.status for answer in answers] == [200] * 3
        for one in clients[1:]:
            one.close()


def test_an_error_of_nginx_is_json(tmp_path: Path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with proxied(tmp_path, closed.getsockname()[1]) as client:
            for path in ("/", "/trading-view/pair-list"):
                answer = client.request(path)
                assert (answer.status, answer.json) == (502, {"error": "The server does not answer"})
                assert answer.headers["content-type"] == "application/json"


def test_nginx_names_the_client_and_hides_the_metrics(tmp_path: Path):
    inner = create_app(LiveIndex())
    scopes: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await inner(scope, receive, send)

    with served(app) as service, proxied(tmp_path, service.port) as client:
        answer = client.request("/metrics")
        assert (answer.status, answer.json) == (404, {"error": "Not Found"})
        assert scopes == []
        forged = "X-Forwarded-For: 203.0.113.7\r\n"
        assert client.request("/trading-view/pair-list", headers=forged).status == 200
        fields = [value for name, value in scopes[0]["headers"] if name == b"x-forwarded-for"]
        assert fields == [b"127.0.0.1"]


def test_nginx_limits_the_requests_of_a_client(tmp_path: Path):
    with served(create_app(LiveIndex())) as service, proxied(tmp_path, service.port) as client:
        assert client.request("/trading-view/pair-list", headers="Content-Length: 2000\r\n").status == 413
    with served(create_app(LiveIndex())) as service, proxied(tmp_path, service.port) as client:
        answer = client.request("/trading-view/pair-list")
        while answer.status == 200:
            answer = client.request("/trading-view/pair-list")
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert answer.json == {"error": "Too many requests"}


def test_another_host_name_is_rejected(tmp_path: Path):
    with served(create_app(LiveIndex())) as service, proxied(tmp_path, service.port) as client:
        assert client.send(b"GET /trading-view/pair-list HTTP/1.1\r\nHost: other.example\r\n\r\n").status == 421
        with pytest.raises(ssl.SSLError):
            ssl.create_default_context().wrap_socket(
                socket.create_connection(client.socket.getpeername()), server_hostname="other.example"
            )
