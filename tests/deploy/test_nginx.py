"""A real nginx with the configuration of the folder deploy, in front of a real server."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPResponse
from pathlib import Path

import pytest
import trustme

from market_index import LiveIndex
from market_index.contract import check
from market_index_http.operating import Health
from tests.apps import composed
from tests.feed_state import FeedState
from tests.market_index_http.books import book
from tests.service import Client, sending, served
from tests.waiting import DEADLINE_SECONDS, eventually

CONFIGURATION = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex([book(1)])


@pytest.fixture
def feed() -> FeedState:
    """The feed of the server on the machine of nginx."""
    return FeedState()


@pytest.fixture
def connection(live: LiveIndex, feed: FeedState, tmp_path: Path) -> Iterator[ssl.SSLSocket]:
    """A TLS connection to nginx, which listens on a path instead of a port. Another server has no books."""
    authority, trusted = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusted)
    certificate = authority.issue_cert("books.example")
    certificate.private_key_pem.write_to_path(tmp_path / "books.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "books.pem")
    path = tmp_path / "nginx.sock"
    health = Health(feed)
    with (
        served(composed(live, stream=True, health=health, metrics=True)) as service,
        served(composed(LiveIndex())) as other,
    ):
        text = CONFIGURATION.read_text().replace("443", f"unix:{path}").replace("/etc/nginx/", f"{tmp_path}/")
        text = text.replace("/var/cache/nginx-market-index", str(tmp_path / "cache"))
        text = text.replace("127.0.0.1:8000 max_fails=0", f"127.0.0.1:{other.port} max_fails=0")
        text = text.replace("127.0.0.1:8000;", f"127.0.0.1:{service.port};")
        user = "user root;" if os.getuid() == 0 else ""
        bodies = f"client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy;"
        bodies += "".join(f" {one}_temp_path {tmp_path}/{one};" for one in ("fastcgi", "scgi", "uwsgi"))
        (tmp_path / "nginx.conf").write_text(
            f"{user} daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\n"
            f"http {{ access_log off; {bodies}\n{text}\n}}"
        )
        command = [str(NGINX), "-p", str(tmp_path), "-e", "stderr", "-c", str(tmp_path / "nginx.conf")]
        with subprocess.Popen(command) as process, socket.socket(socket.AF_UNIX) as plain:

            def has_connected() -> bool:
                assert process.poll() is None
                with suppress(OSError):
                    plain.connect(str(path))
                    return True
                return False

            try:
                eventually(has_connected)
                plain.settimeout(DEADLINE_SECONDS)
                with trusted.wrap_socket(plain, server_hostname="books.example") as secure:
                    yield secure
            finally:
                process.terminate()


def get(connection: ssl.SSLSocket, target: str) -> tuple[int, bytes]:
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: books.example\r\n\r\n".encode())
    response = HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


def test_a_stream_passes_without_delay(live: LiveIndex, connection: ssl.SSLSocket):
    """nginx buffers other responses; `/stream` forbids it."""
    connection.sendall(b"GET /stream?levels=changed HTTP/1.1\r\nHost: books.example\r\n\r\n")
    response = HTTPResponse(connection)
    response.begin()
    assert response.status == 200
    for event in (b"book", b"change"):
        lines = list(iter(response.readline, b"event: version\n"))
        assert b"event: %b\n" % event in lines
        response.readline()  # the data of the version
        live.publish(live.current[book(1).pair].apply(bids=[("0.00001", 7)]))


def test_the_contract_holds_through_nginx(connection: ssl.SSLSocket):
    class Proxied(Client):
        host = "books.example"

        def _connect(self, address: object) -> None:
            plain = socket.socket(socket.AF_UNIX)
            plain.settimeout(DEADLINE_SECONDS)
            plain.connect(connection.getpeername())
            self.socket = connection.context.wrap_socket(plain, server_hostname=self.host)

    with closing(Proxied(0)) as client:
        assert check(sending(client)).failed() == []


def test_another_server_answers_while_this_one_is_not_ready(connection: ssl.SSLSocket, feed: FeedState):
    def pairs() -> int:
        time.sleep(0.05)  # nginx closes a connection after 1,000 requests
        status, body = get(connection, "/trading-view/pair-list")
        assert status == 200
        return len(json.loads(body)["pairs"])

    assert pairs() == 1
    feed.problem, feed.is_unknown = "has ended", True
    eventually(lambda: pairs() == 0)
    feed.problem, feed.is_unknown = None, False
    eventually(lambda: pairs() == 1)


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/livez"])
def test_what_only_the_operator_needs_is_not_public(connection: ssl.SSLSocket, path: str):
    status, body = get(connection, path)
    assert (status, json.loads(body)["error"]) == (404, "Not Found")
