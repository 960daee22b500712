"""A real nginx with the configuration of the folder deploy, in front of a real server."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path

import pytest
import trustme

from market_index import LiveIndex
from tests.apps import composed
from tests.market_index_http.books import book
from tests.service import served
from tests.waiting import DEADLINE_SECONDS, eventually

CONFIGURATION = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex([book(1)])


@pytest.fixture
def connection(live: LiveIndex, tmp_path: Path) -> Iterator[ssl.SSLSocket]:
    """A TLS connection to nginx, which listens on a path instead of a port."""
    authority, trusted = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusted)
    certificate = authority.issue_cert("books.example")
    certificate.private_key_pem.write_to_path(tmp_path / "books.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "books.pem")
    path = tmp_path / "nginx.sock"
    with served(composed(live, stream=True)) as service:
        text = CONFIGURATION.read_text().replace("/etc/nginx/", f"{tmp_path}/")
        text = text.replace("/var/cache/nginx-market-index", str(tmp_path / "cache")).replace("443", f"unix:{path}")
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{service.port}")
        user = "user root;" if os.getuid() == 0 else ""
        (tmp_path / "nginx.conf").write_text(
            f"{user} daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n{text}\n}}"
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
