"""`market-index serve`: a process, real files, real signals, a real terminal; errors of options are invoked here."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from market_index import ADA, AssetId, OrderBook, Pair, wire
from market_index.freshness import parse_time
from market_index_feeds import open_store
from tests import command as commands
from tests.command import COMMAND, SAMPLE, Running, invoke, padded_above_4_mib, run, running, untimed
from tests.market_index_feeds.made_up import book, pair
from tests.service import Client
from tests.waiting import DEADLINE_SECONDS, eventually


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server of the sample with no other option, for the tests that only read from it."""
    with running(tmp_path_factory.mktemp("sample"), SAMPLE, "--port", 0) as command:
        yield command


def test_every_book_of_the_sample_is_served(sample: Running):
    lines = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    service = sample.service
    assert untimed(sample.stderr).startswith(f"{SAMPLE}: {len(lines)} pairs, 0 records rejected\nlistening on http://")
    assert {(one["base"], one["quote"]) for one in service.pair_list().json["pairs"]} == {
        (line["base"], line["quote"]) for line in lines
    }
    for line in lines:
        assert service.order_book(line["base"], line["quote"]).json == line


def test_a_response_has_a_date_and_names_no_server(sample: Running):
    headers = sample.service.pair_list().headers
    assert "server" not in headers
    assert "date" in headers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server(tmp_path: Path, number: signal.Signals):
    with running(tmp_path, SAMPLE, "--port", 0) as command:
        idle = Client(command.service.port)
        idle.request("/trading-view/pair-list")
        assert command.end(number) == 0
        assert "Traceback" not in command.stderr
        assert command.stderr.count("\n") == 2
        idle.close()


@pytest.mark.thorough
def test_every_recorded_book_is_served_as_plain_json_and_decimal_read_it(tmp_path: Path, recorded_order_books: Path):
    with running(tmp_path, recorded_order_books, "--port", 0) as command:
        client = Client(command.service.port)
        assert f"{recorded_order_books}: 756 pairs, 0 records rejected\n" in command.stderr
        assert len(client.request("/trading-view/pair-list").json["pairs"]) == 756
        for line in recorded_order_books.read_text().splitlines():
            plain = json.loads(line)
            answer = client.request(f"/trading-view/order-book?base={plain['base']}&quote={plain['quote']}").json
            assert (answer["base"], answer["quote"]) == (plain["base"], plain["quote"])
            assert (answer["spot"] and Decimal(answer["spot"])) == (plain["spot"] and Decimal(plain["spot"]))
            for side, falling in (("bids", True), ("asks", False)):
                levels = [(Decimal(one["price"]), one["accumulated_liquidity"]) for one in answer[side]]
                assert levels == [(Decimal(one["price"]), one["accumulated_liquidity"]) for one in plain[side]]
                assert levels == sorted(levels, key=lambda level: level[0], reverse=falling)
                assert len({price for price, _ in levels}) == len(levels)
        client.close()


def test_changes_of_the_file_go_live_and_rejected_lines_are_logged(tmp_path: Path):
    path = tmp_path / "books.ndjson"
    lines = SAMPLE.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"nonsense\n")
    with running(tmp_path, path, "--port", 0) as command:
        service = command.service
        assert f"{path}: 1 pairs, 1 records rejected\n" in command.stderr
        assert f"{path} line 2 rejected: must be JSON, but is not at character 0" in command.stderr
        with path.open("ab") as file:
            file.write(lines[1])
        eventually(lambda: len(service.pair_list().json["pairs"]) == 2)
        path.unlink()
        eventually(lambda: "keeping its 2 pairs" in command.stderr)
        assert len(service.pair_list().json["pairs"]) == 2
        assert command.end() == 0


def test_standard_input_is_served_while_it_is_open_and_after_its_end(tmp_path: Path):
    lines = SAMPLE.read_bytes().splitlines(keepends=True)
    with running(tmp_path, "-", "--port", 0, stdin=subprocess.PIPE) as command:
        pipe = command.process.stdin
        assert pipe
        pipe.write(b"".join(lines[:5]))
        pipe.flush()
        service = command.service
        eventually(lambda: len(service.pair_list().json["pairs"]) == 5)
        pipe.write(lines[5] + lines[6][:-1])
        pipe.close()
        eventually(lambda: "standard input ended: 6 order books read, 1 records rejected" in command.stderr)
        assert "standard input line 7 rejected: must end with a newline" in command.stderr
        assert len(service.pair_list().json["pairs"]) == 6
        assert command.end() == 0


def test_the_first_response_has_the_whole_file_on_standard_input(tmp_path: Path):
    with SAMPLE.open("rb") as sample, running(tmp_path, "-", "--port", 0, stdin=sample) as command:
        assert len(command.service.pair_list().json["pairs"]) == 13
        assert "standard input: 13 pairs, 0 records rejected\n" in command.stderr


BOOK = commands.line(1).encode()


class TestHealth:
    """What `/healthz` reports without any limit."""

    def status(self, command: Running) -> tuple[int, object]:
        answer = command.service.request("/healthz")
        return answer.status, answer.json["problem"]

    @pytest.mark.parametrize("name", ["-", "orders:-"])
    def test_a_stream_that_has_ended_is_not_healthy(self, tmp_path: Path, name: str):
        reading, writing = os.pipe()
        with running(tmp_path, name, "--port", 0, stdin=reading) as command:
            os.close(reading)
            os.write(writing, b'{"reset": true}\n{"block": "slot 1"}\n' if name == "orders:-" else BOOK)
            eventually(lambda: self.status(command) == (200, None))
            os.close(writing)
            eventually(lambda: self.status(command) == (503, "has ended"))
            assert command.service.request("/healthz").json["error"] == "feed: has ended"

    @pytest.mark.parametrize(
        "content", [b"", b"\n", b'{"base": "nonsense"}\n', b'nonsense\n{"base": "ADA"}\n', BOOK[:9]]
    )
    def test_a_file_without_a_valid_line_is_not_healthy_until_it_has_one(self, tmp_path: Path, content: bytes):
        path = tmp_path / "books.ndjson"
        path.write_bytes(content)
        with running(tmp_path, path, "--port", 0) as command:
            assert self.status(command) == (503, "contains no order book")
            with path.open("ab") as file:
                file.write(b"\n" + BOOK)
            eventually(lambda: self.status(command) == (200, None))

    def test_a_stream_without_a_valid_line_is_not_healthy(self, tmp_path: Path):
        reading, writing = os.pipe()
        with running(tmp_path, "-", "--port", 0, stdin=reading) as command:
            os.close(reading)
            os.write(writing, b"nonsense\n")
            eventually(lambda: "line 1 rejected" in command.stderr)
            eventually(lambda: self.status(command) == (503, "contains no valid order book"))
            os.close(writing)

    def test_a_store_is_healthy_from_its_first_publication_on(self, tmp_path: Path, store: Path):
        with open_store(store) as publishing, running(tmp_path, store, "--port", 0) as command:
            assert self.status(command) == (503, "contains no order book")
            publishing.update(())
            eventually(lambda: self.status(command) == (200, None))


def is_listened_on(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_response_in_flight_is_completed_after_a_signal(tmp_path: Path):
    pair = Pair(AssetId(b"\x01" * 28, b"deep"), ADA)
    levels = ",".join(f'{{"price":"{price}","accumulated_liquidity":1}}' for price in range(1, 120_001))
    body = f'{{"base":"{pair.base}","quote":"ADA","spot":null,"bids":[],"asks":[{levels}]}}'.encode()
    path = tmp_path / "deep.ndjson"
    path.write_bytes(body + b"\n")
    with running(tmp_path, path, "--port", 0) as command:
        port = command.service.port
        with socket.socket() as connection:
            # So small that the response does not fit into the buffers of the sockets.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.settimeout(DEADLINE_SECONDS)
            connection.connect(("127.0.0.1", port))
            target = f"/trading-view/order-book?base={pair.base}&quote=ADA"
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            received = connection.recv(4096)
            command.process.send_signal(signal.SIGTERM)
            eventually(lambda: not is_listened_on(port))
            assert command.process.poll() is None
            while chunk := connection.recv(65536):
                received += chunk
        assert received.partition(b"\r\n\r\n")[2] == body
        assert command.process.wait(DEADLINE_SECONDS) == 0


@pytest.mark.thorough
def test_a_signal_ends_a_server_whose_clients_do_not_read(tmp_path: Path):
    deep = Pair(AssetId(b"\x01" * 28, b"deep"), ADA)
    book = OrderBook.from_levels(deep, asks=[(str(price), 2**60) for price in range(1, 150_001)])
    path = tmp_path / "deep.ndjson"
    path.write_bytes(wire.order_book_to_json(book) + b"\n")
    with running(tmp_path, path, "--port", 0) as command, ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(closing(Client(command.service.port)))
            request = f"GET /trading-view/order-book?base={deep.base}&quote=ADA HTTP/1.1\r\nHost: test\r\n\r\n"
            client.socket.sendall(request.encode())
            assert client.socket.recv(1) == b"H"
        assert command.end() == 0
        assert "Traceback" not in command.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_signal_ends_a_server_that_loads(tmp_path: Path, number: signal.Signals):
    path = tmp_path / "large.ndjson"
    # Each of the lines is logged as rejected, which takes ten seconds: the signal comes long before the end.
    path.write_bytes((b"{" * 99 + b"\n") * 200_000)
    with running(tmp_path, path, "--port", 0) as command:
        eventually(lambda: "line 1 rejected" in command.stderr)
        assert command.end(number) == 0
        assert "Traceback" not in command.stderr
        assert "listening" not in command.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_signal_ends_the_wait_for_a_stream(tmp_path: Path, number: signal.Signals):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with running(tmp_path, pipe, "--port", 0) as command, pipe.open("wb", buffering=0) as writer:
        writer.write(b"nonsense\n")
        eventually(lambda: "line 1 rejected" in command.stderr)
        assert command.end(number) == 0
        assert "Traceback" not in command.stderr


def test_flags_are_read_from_the_environment_too(tmp_path: Path):
    environment = {
        "MARKET_INDEX_FEED": str(SAMPLE),
        "MARKET_INDEX_PORT": "0",
        "MARKET_INDEX_HOST": "127.0.0.1",
        "MARKET_INDEX_ACCESS_LOG": "1",
    }
    with running(tmp_path, **environment) as command:
        assert command.service.pair_list().status == 200
        eventually(lambda: " GET /trading-view/pair-list 200\n" in command.stderr)


def test_an_error_names_the_variable_that_has_the_wrong_value():
    done = invoke("serve", SAMPLE, MARKET_INDEX_MAX_AGE="soon")
    assert (done.returncode, "'--max-age' (env var: 'MARKET_INDEX_MAX_AGE'): 'soon'" in done.stderr) == (2, True)


def test_requests_are_not_logged_by_default(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0) as command:
        assert command.service.pair_list().status == 200
        assert command.end() == 0
        assert "GET" not in command.stderr


def test_clients_revalidate_a_response_by_default(sample: Running):
    assert sample.service.pair_list().headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("seconds", [0, pytest.param(5, marks=pytest.mark.thorough)])
def test_max_age_is_sent_to_clients(tmp_path: Path, seconds: int):
    with running(tmp_path, SAMPLE, "--port", 0, "--max-age", seconds) as command:
        assert command.service.pair_list().headers["cache-control"] == f"max-age={seconds}"


@pytest.mark.skipif(sys.platform != "linux", reason="the libraries that a process has loaded are read from /proc")
def waiting(client: Client, seconds: int) -> bytes:
    """Return a request that waits for a change of the pair list."""
    etag = client.request("/trading-view/pair-list").headers["etag"]
    fields = f"Host: test\r\nIf-None-Match: {etag}\r\nPrefer: wait={seconds}\r\n"
    return f"GET /trading-view/pair-list HTTP/1.1\r\n{fields}\r\n".encode()


def test_requests_wait_for_a_change_by_default_at_most_as_long_as_allowed(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--max-wait", 1) as command, closing_client(command) as client:
        answer = client.send(waiting(client, 20))
        assert (answer.status, answer.headers["preference-applied"]) == (304, "wait=1")
    with running(tmp_path, SAMPLE, "--port", 0, "--max-wait", 0) as command, closing_client(command) as client:
        answer = client.send(waiting(client, 20))
        assert (answer.status, "preference-applied" in answer.headers) == (304, False)


def test_a_signal_ends_a_wait_with_a_response(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0) as command, closing_client(command) as client:
        client.socket.sendall(waiting(client, 60))
        with closing_client(command) as other:
            # The server has received the request before this one.
            assert other.request("/trading-view/pair-list").status == 200
        command.process.terminate()
        answer = client.send(b"")
        assert (answer.status, answer.headers["preference-applied"]) == (304, "wait=30")
        assert command.process.wait(DEADLINE_SECONDS) == 0


def closing_client(command: Running) -> closing[Client]:
    return closing(Client(command.service.port))


def test_it_runs_on_uvloop_and_httptools(sample: Running):
    assert sample.service.pair_list().status == 200
    loaded = Path(f"/proc/{sample.process.pid}/maps").read_text()
    assert "/uvloop/loop." in loaded
    assert "/httptools/parser/" in loaded


def test_it_can_listen_on_ipv6(tmp_path: Path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    with running(tmp_path, SAMPLE, "--host", "::1", "--port", 0) as command:
        eventually(lambda: "listening on http://[::1]:" in command.stderr)


def test_help_shows_defaults_variables_and_examples():
    done = invoke("serve", "--help")
    assert done.returncode == 0
    for shown in ("127.0.0.1", "8000", "MARKET_INDEX_PORT", "market-index serve books.ndjson", "Exit codes"):
        assert shown in done.stdout
    assert "serve" in invoke("--help").stdout
    assert run("--version").stdout.startswith("market-index, version ")


def on_a_terminal(path: Path) -> str:
    """Serve the file with standard error on a terminal, and return what it showed until it listened."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([COMMAND, "serve", str(path), "--port", "0"], stdin=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"listening on" not in shown:
        shown += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_SECONDS) == 0
    os.close(ours)
    return shown.decode()


def test_loading_a_large_file_shows_progress_on_a_terminal(tmp_path: Path):
    path = tmp_path / "large.ndjson"
    path.write_text(padded_above_4_mib(SAMPLE.read_text()))
    shown = on_a_terminal(path)
    assert "100%" in shown
    assert shown.count("%") > 2
    assert f"{path}: 13 pairs, 0 records rejected" in shown


def test_loading_a_small_file_shows_none(tmp_path: Path):
    assert "%" not in on_a_terminal(SAMPLE)


def test_a_store_is_served_and_its_changes_go_live(store: Path, tmp_path: Path):
    invoke("publish", store, SAMPLE)
    with running(tmp_path, store, "--port", 0) as command:
        service = command.service
        assert untimed(command.stderr).startswith(f"{store}: 13 pairs, 0 records rejected\nlistening on http://")
        assert len(service.pair_list().json["pairs"]) == 13
        with open_store(store) as publishing:
            publishing.publish(book(1, 1))
        eventually(lambda: len(service.pair_list().json["pairs"]) == 14)
        assert invoke("retract", store, pair(1).base, "ADA").returncode == 0
        eventually(lambda: len(service.pair_list().json["pairs"]) == 13)
        assert command.end() == 0


def test_health_reports_the_feed_and_fails_while_the_feed_is_stale(tmp_path: Path, store: Path):
    assert invoke("publish", store, SAMPLE).returncode == 0
    with running(tmp_path, store, "--port", 0, "--max-stale", 0.5) as command:
        service = command.service
        eventually(lambda: service.request("/healthz").status == 200)
        status = service.request("/healthz").json
        # A busy machine may read the store later than after half a second.
        status.pop("error", None)
        for name in ("age_seconds", "quiet_seconds", "unchanged_seconds"):
            assert status.pop(name) >= 0
        assert parse_time(status.pop("published_at")) <= datetime.now(UTC)
        assert status == {
            "pairs": 13,
            "revision": 1,
            "as_of": None,
            "max_quiet_seconds": None,
            "problem": None,
            "current_rejections": 0,
            "process": command.process.pid,
        }
        with open_store(store) as publishing:
            publishing.publish(book(1))
        eventually(lambda: service.request("/healthz").json["revision"] == 2)
        assert service.request("/healthz").json["pairs"] == 14

        hidden = store.rename(store.with_name("hidden.db"))
        eventually(lambda: service.request("/healthz").status == 503)
        status = service.request("/healthz").json
        assert status["error"].startswith("the feed was last healthy ")
        # Stale is more than 0.5 seconds, and the age is rounded.
        assert status["age_seconds"] >= 0.5
        assert status["problem"] == "cannot be read: No such file or directory"
        assert (status["pairs"], status["revision"]) == (14, 2)
        assert len(service.pair_list().json["pairs"]) == 14, "the last good books are still served"
        hidden.rename(store)
        eventually(lambda: service.request("/healthz").status == 200)


def test_the_page_is_served_by_default(sample: Running):
    assert sample.service.request("/").headers["content-type"].startswith("text/html")


def test_web_pages_of_other_origins_may_not_read_responses_by_default(sample: Running):
    client = Client(sample.service.port)
    answer = client.request("/trading-view/pair-list", headers="Origin: https://page.example\r\n")
    client.close()
    assert "access-control-allow-origin" not in answer.headers


def test_a_file_has_no_revision(sample: Running):
    assert sample.service.request("/healthz").json["revision"] is None
