"""What the documentation of Starlette shows works on the app, under each server: see `hosted.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.market_index_http.books import MIDDLE, PAIR_LIST, target
from tests.service import Client
from tests.waiting import DEADLINE_SECONDS, eventually

SERVERS = {
    "uvicorn": ["uvicorn", "--uds", "PATH"],
    "hypercorn": ["hypercorn", "--bind", "unix:PATH"],
    "granian": ["granian", "--interface", "asgi", "--uds", "PATH"],
}


@pytest.fixture(scope="module", params=SERVERS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of the socket of a server. It ends by SIGTERM."""
    path = tmp_path_factory.mktemp("server") / "socket"
    words = [word.replace("PATH", str(path)) for word in SERVERS[request.param]]
    command = [sys.executable, "-m", *words, "tests.market_index_http.hosted:host"]
    with (path.parent / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, cwd=Path(__file__).parents[2], env=os.environ)
    try:
        eventually(lambda: answers(path))
        yield path
    finally:
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) in {0, -15}, (path.parent / "log").read_text()


def answers(path: Path) -> bool:
    try:
        Client(path).close()
    except OSError:
        return False
    return True


def test_the_calls_of_starlette_work(path: Path):
    with closing(Client(path)) as client:
        assert client.request(f"/api{target(MIDDLE.pair)}").status == 200, "the lifespan of the host has published"
        assert client.request("/api/added").body == b"the host's own"
        assert client.request("/api/below/own").body == b"the host's own"
        assert client.request("/api/own").status == 404
        assert client.send(b"GET /api/own HTTP/1.1\r\nHost: sub.example\r\n\r\n").body == b"the host's own"
        for where, status in ((PAIR_LIST, 200), ("/nowhere", 404), (f"{PAIR_LIST}%0A", 404)):
            answer = client.request(f"/api{where}")
            assert (answer.status, answer.headers["x-stamp"]) == (status, "seen")
        assert client.request("/api/nowhere").json == {"error": "Not Found"}
        included = client.request(f"/included{PAIR_LIST}")
        assert included.body == client.request(f"/api{PAIR_LIST}").body
        assert client.request("/included/trading-view/order-book").json == {
            "error": "Query parameter 'base' is missing"
        }
        assert client.request(f"/api{PAIR_LIST}", "POST").json == {"error": "Method Not Allowed"}


def test_a_response_without_content_leaves_the_connection_in_step(path: Path):
    with closing(Client(path)) as client:
        for where in (target(MIDDLE.pair), "/nowhere", PAIR_LIST):
            head = client.request(f"/api{where}", "HEAD")
            whole = client.request(f"/api{where}")
            assert head.body == b""
            assert head.headers["content-length"] == str(len(whole.body))
        whole = client.request(f"/api{PAIR_LIST}")
        etag = whole.headers["etag"]
        assert client.request(f"/api{PAIR_LIST}", headers=f"If-None-Match: {etag}\r\n").status == 304
        assert client.request(f"/api{PAIR_LIST}").body == whole.body
