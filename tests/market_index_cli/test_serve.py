"""`market-index serve`: a process, real files and signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from importlib.metadata import version
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, Progress, open_store
from tests.command import COMMAND, SAMPLE, Running, invoke, running, started, untimed
from tests.feeds.made_up import book, pair
from tests.metrics import scrape
from tests.page import PAGE, SNEK, token_of
from tests.service import Client, HttpResponse
from tests.waiting import DEADLINE_SECONDS, eventually

LIST = "/trading-view/pair-list"
VERSION = version("market-index")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server of the sample with no other option, for the tests that only read from it."""
    with running(tmp_path_factory.mktemp("sample"), SAMPLE, "--port", 0) as command:
        yield command


def fetch(command: Running, target: str = LIST, method: str = "GET", headers: str = "") -> HttpResponse:
    with closing(Client(command.service.port)) as client:
        return client.request(target, method, headers)


def test_too_few_open_files():
    limited = ["sh", "-c", 'ulimit -n 127; exec "$@"', "sh", str(COMMAND), "serve", str(SAMPLE)]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    message = "Error: the limit of open files (ulimit -n) must be at least 128, got 127\n"
    assert (done.returncode, done.stderr) == (2, message)


class TestSample:
    """What is served without options."""

    def test_every_book(self, sample: Running):
        lines = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
        service = sample.service
        assert untimed(sample.stderr).startswith(
            f"market-index {VERSION}: serving {SAMPLE}\n{SAMPLE}: {len(lines)} pairs, 0 records rejected\nlistening on "
        )
        assert {(one["base"], one["quote"]) for one in service.pair_list().json["pairs"]} == {
            (line["base"], line["quote"]) for line in lines
        }
        for line in lines:
            assert service.order_book(line["base"], line["quote"]).json == line

    def test_the_page_health_metrics_and_the_description(self, sample: Running):
        assert fetch(sample, "/").headers["content-type"].startswith("text/html")
        assert fetch(sample, "/healthz").json["process"] == sample.process.pid
        assert fetch(sample, "/openapi.json").json["openapi"].startswith("3.")
        samples = scrape(sample.service)
        assert samples["market_index_pairs", "worker=0"] == 13
        assert samples["market_index_workers", "worker=0"] == 1
        assert samples["market_index_max_connections", "worker=0"] > 0

    @pytest.mark.parametrize("target", [LIST, "/nothing", "/\x01"])
    def test_header_fields_of_each_response(self, sample: Running, target: str):
        headers = fetch(sample, target).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert not headers.keys() & {"server", "access-control-allow-origin"}

    @pytest.mark.skipif(sys.platform != "linux", reason="the libraries that a process has loaded are read from /proc")
    def test_uvloop_and_httptools_are_used(self, sample: Running):
        assert sample.service.pair_list().status == 200  # the event loop runs
        loaded = Path(f"/proc/{sample.process.pid}/maps").read_text()
        assert "/uvloop/loop." in loaded
        assert "/httptools/parser/" in loaded


def test_a_store_goes_live_and_is_unhealthy_while_it_is_stale(tmp_path: Path, store: Path):
    assert invoke("publish", store, SAMPLE).returncode == 0
    with running(tmp_path, store, "--port", 0, "--max-stale", 0.5) as command:
        service = command.service
        with open_store(store) as publishing:
            publishing.publish(book(1, 1))
        eventually(lambda: len(service.pair_list().json["pairs"]) == 14)
        store.rename(store.with_name("hidden.db"))
        eventually(lambda: service.request("/healthz").status == 503)
        command.has_logged("WARNING market_index_cli")
        command.has_logged("not ready: the feed was last healthy ")
        assert service.request("/healthz").json["problem"] == "cannot be read: No such file or directory"
        assert len(service.pair_list().json["pairs"]) == 14, "the last good books are still served"
        store.with_name("hidden.db").rename(store)
        command.has_logged("ready again")


class TestSignals:
    """SIGTERM and SIGINT end the command with 0, whatever it does."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_open_streams_end_with_the_server(self, tmp_path: Path, number: signal.Signals):
        limited = ("sh", "-c", 'ulimit -n 128 && exec "$@"', "sh", COMMAND, "serve", SAMPLE, "--port", 0)
        with started(tmp_path / "errors", *limited) as command, ExitStack() as stack:
            clients = [stack.enter_context(closing(Client(command.service.port))) for _ in range(33)]
            for client in clients:
                client.socket.sendall(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
                # Half of the connections are for requests.
                status = b"503" if client is clients[-1] else b"200"
                assert client.socket.recv(12) == b"HTTP/1.1 " + status
            assert command.end(number) == 0
            *_, last = untimed(command.stderr).splitlines()
            assert last.startswith("shutting down: ")

    @pytest.mark.thorough
    def test_a_response_that_waits_for_its_client_is_completed(self, tmp_path: Path):
        levels = ",".join(f'{{"price":"{price}","accumulated_liquidity":1}}' for price in range(1, 120_001))
        body = f'{{"base":"{pair(1).base}","quote":"ADA","spot":null,"bids":[],"asks":[{levels}]}}'.encode()
        path = tmp_path / "deep.ndjson"
        path.write_bytes(body + b"\n")
        with running(tmp_path, path, "--port", 0) as command, closing(Client(command.service.port)) as client:
            # So small that the response does not fit into the buffers of the sockets.
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            target = f"/trading-view/order-book?base={pair(1).base}&quote=ADA"
            client.socket.sendall(f"GET {target} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            received = client.socket.recv(4096)
            command.process.terminate()
            command.has_logged("shutting down: 1 connections")
            while chunk := client.socket.recv(65536):
                received += chunk
            assert received.partition(b"\r\n\r\n")[2] == body
            assert command.process.wait(DEADLINE_SECONDS) == 0

    def test_a_server_that_loads(self, tmp_path: Path):
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with running(tmp_path, pipe, "--port", 0) as command, pipe.open("wb", buffering=0) as writer:
            writer.write(b"nonsense\n")
            eventually(lambda: "line 1 rejected" in command.stderr)
            assert command.end() == 0
            assert "Warning:" not in command.stderr
            assert "Traceback" not in command.stderr


PAGE_ORIGIN = "https://page.example"
VARIABLES = {
    "FEED": str(SAMPLE),
    "PORT": "0",
    "HOST": "127.0.0.1",
    "ACCESS_LOG": "1",
    "MAX_AGE": "7",
    "MAX_QUIET": "1000",
    "TOKENS": str(PAGE.parents[2] / "market_index_feeds" / "sample" / "tokens.json"),
    "CORS_ORIGIN": f"{PAGE_ORIGIN} http://127.0.0.1:3000",
}


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    variables = {f"MARKET_INDEX_{name}": value for name, value in VARIABLES.items()}
    with running(tmp_path_factory.mktemp("configured"), **variables) as command:
        yield command


class TestVariables:
    """Each option is read from the variable with its name."""

    def test_the_options_hold(self, configured: Running):
        service = configured.service
        assert service.pair_list().headers["cache-control"] == "max-age=7"
        assert service.request("/healthz").json["max_quiet_seconds"] == 1000
        assert token_of(service, SNEK) == ("SNEK", 0)
        assert service.order_book(str(SNEK), "ADA").json["spot"] == "4123.5", "the API has no human units"
        eventually(lambda: f'"GET {LIST} HTTP/1.1" 200 ' in configured.stderr)

    @pytest.mark.parametrize(("target", "status"), [(LIST, 200), ("/trading-view/order-book", 400), ("/nothing", 404)])
    def test_pages_of_allowed_origins_read_all_responses(self, configured: Running, target: str, status: int):
        """The middleware is that of Starlette."""
        answer = fetch(configured, target, headers=f"Origin: {PAGE_ORIGIN}\r\n")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, PAGE_ORIGIN)
        exposed = "ETag, Market-Index-As-Of, Market-Index-Published-At"
        assert answer.headers["access-control-expose-headers"] == exposed
        asked = "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: If-None-Match\r\n"
        assert fetch(configured, target, "OPTIONS", f"Origin: {PAGE_ORIGIN}\r\n{asked}").status == 200
        answer = fetch(configured, target, headers="Origin: https://other.example\r\n")
        assert (answer.status, "access-control-allow-origin" in answer.headers) == (status, False)


def test_without_a_feed_the_sample_is_served_with_labels(tmp_path: Path):
    with running(tmp_path, "--port", 0) as command:
        assert token_of(command.service, SNEK) == ("SNEK", 0)
        assert untimed(command.stderr).startswith(f"market-index {VERSION}: serving sample:\nsample:: 13 pairs, ")


def test_an_address_that_is_taken_while_it_loads_is_exit_code_4(monkeypatch: pytest.MonkeyPatch):
    start = Feed.start
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]

        def start_while_another_listens(feed: Feed, live: LiveIndex, progress: Progress | None = None) -> None:
            start(feed, live, progress)
            other.listen()

        monkeypatch.setattr(Feed, "start", start_while_another_listens)
        done = invoke("serve", SAMPLE, "--port", port)
    assert done.returncode == 4
    assert done.stderr.endswith(f": cannot listen on http://127.0.0.1:{port}: Address already in use\n")


def test_it_can_listen_on_ipv6(tmp_path: Path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    with running(tmp_path, SAMPLE, "--host", "::1", "--port", 0) as command:
        eventually(lambda: "listening on http://[::1]:" in command.stderr)
