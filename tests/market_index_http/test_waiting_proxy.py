"""Waiting behind a real nginx with the configurations of docs/serving.md."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

import pytest

from market_index import LiveIndex
from market_index_cli.server.http_server import Server
from market_index_http import create_app
from tests.benchmarks.nginx import configuration
from tests.market_index_http.books import book, fetch, numbered_pair, target
from tests.service import Client, served
from tests.waiting import DEADLINE_SECONDS, eventually

NGINX = shutil.which("nginx") or ""
PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


@contextmanager
def proxied(folder: Path, location: str, upstream: str) -> Iterator[int]:
    """Run nginx with a location of the page. Yield its port."""
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    zones = f"proxy_cache_path {folder}/books keys_zone=books:10m;\n"
    (folder / "nginx.conf").write_text(
        configuration(folder, f"{zones}{upstream}\nserver {{ listen 127.0.0.1:{port};\n{location} }}")
    )
    with subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-p", folder]) as nginx:
        try:
            eventually(lambda: answers(port))
            yield port
        finally:
            nginx.terminate()


def answers(port: int) -> bool:
    try:
        Client(port).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.skipif(not NGINX, reason="nginx is not installed: apt-get install nginx-light")
@pytest.mark.parametrize("has_cache", [False, True])
def test_requests_wait_behind_nginx(tmp_path: Path, *, has_cache: bool):
    plain, cached = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    location = cached if has_cache else plain[plain.index("    location") : plain.rindex("}")]
    live = LiveIndex([book(1, 1, "1")])
    app = create_app(live, max_wait=60)
    path = target(numbered_pair(1))
    with served(app, Server(app, on_shutdown=app.end_waits)) as service, ThreadPoolExecutor(1) as threads:
        upstream = plain[: plain.index("server {")].replace("8000", str(service.port))
        with proxied(tmp_path, location, upstream) as port:
            client = Client(port)
            etag = fetch(client, path).headers["etag"]
            answer = fetch(client, path, if_none_match=etag, prefer="wait=1")
            assert (answer.status, answer.headers["preference-applied"]) == (304, "wait=1")
            waiting = threads.submit(fetch, client, path, if_none_match=etag, prefer="wait=50")
            eventually(lambda: app._waits._watches)
            live.publish(book(1, 1, "2"))
            assert waiting.result(DEADLINE_SECONDS).json["spot"] == "2"
            # The cache revalidates.
            assert fetch(client, path).json["spot"] == "2"
            client.close()
