"""`market-index check` and `pytest --market-index-url`, against our own service and foreign ones on real sockets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from market_index import LiveIndex
from market_index.contract import Request, Rule
from market_index_feeds import open_feed
from tests.apps import composed
from tests.command import SAMPLE, invoke
from tests.market_index.contract.double import Double
from tests.market_index.contract.planted import PLANTED, bare
from tests.service import served


@contextmanager
def foreign(double: Double, *, version: str = "HTTP/1.1", key: str = "") -> Iterator[str]:
    """Serve a double by the standard library, which has no HEAD by itself; with HTTP/1.1, in chunks."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = version
        disable_nagle_algorithm = True  # otherwise each second write waits for an acknowledgement

        def do_GET(self) -> None:
            response = double(
                Request(self.path, self.command, {"If-None-Match": self.headers.get("If-None-Match", "")})
            )
            is_allowed = self.headers.get("X-API-Key", "") == key
            self.send_response(response.status if is_allowed else 401)
            for name, text in response.headers.items():
                if name != "content-length":
                    self.send_header(name, text)
            if version == "HTTP/1.1":
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (response.body[:10], response.body[10:]):
                if version == "HTTP/1.0":
                    self.wfile.write(piece)
                elif piece:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n" if version == "HTTP/1.1" else b"")

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_our_service_keeps_the_contract_and_all_decisions():
    with served(composed(LiveIndex(open_feed(SAMPLE).read().values()))) as service:
        done = invoke("check", f"http://127.0.0.1:{service.port}", "--strict")
    assert (done.returncode, done.stderr) == (0, "")
    *rules, summary = done.stdout.splitlines()
    assert {line.split()[0] for line in rules} == {"passed"}
    assert summary.startswith(f"0 of {len(Rule)} rules failed, by ")


def test_a_bare_service_in_another_style_holds_and_differs_from_the_decisions():
    double = Double()
    bare(double)
    with foreign(double, version="HTTP/1.0") as url:
        done = invoke("check", url)
    assert (done.returncode, "FAILED" in done.stdout) == (0, False), done.stdout
    with foreign(double, version="HTTP/1.1") as url:
        strict = invoke("check", url, "--strict")
    assert (strict.returncode, "FAILED          decision 20 " in strict.stdout) == (1, True)
    assert "FAILED          contract" not in strict.stdout


def test_a_fault_is_shown_with_the_request_and_what_was_expected():
    double = Double()
    PLANTED[Rule.ASKS]["highest first"](double)
    with foreign(double) as url:
        done = invoke("check", url)
        as_json = invoke("check", url, "--json")
    assert done.returncode == as_json.returncode == 1
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("FAILED"))
    assert Rule.ASKS.text in lines[at]
    assert lines[at + 1].startswith("    GET /trading-view/order-book?base=ADA&quote=")
    assert lines[at + 2 : at + 4] == ["      expected: asks[1].price after 0.002", "      came:     '0.00013'"]
    (failed,) = [one for one in json.loads(as_json.stdout)["rules"] if one["outcome"] == "failed"]
    assert (failed["rule"], failed["source"]) == ("asks", Rule.ASKS.source)
    assert failed["faults"][0]["expected"] == "asks[1].price after 0.002"


def test_a_service_that_cannot_be_read_is_exit_code_3_and_headers_are_sent(tmp_path: Path):
    (tmp_path / "headers").write_text("X-API-Key: secret\n")
    with foreign(Double(), key="secret") as url:
        done = invoke("check", url)
        assert done.returncode == 3
        assert "the pair list cannot be read: status 401" in done.stderr
        assert invoke("check", url, "--headers", tmp_path / "headers").returncode in {0, 1}
    assert invoke("check", url).returncode == 3
    assert invoke("check", "books.ndjson").returncode == 3


def test_a_check_ends_after_its_time():
    with foreign(Double()) as url:
        done = invoke("check", url, "--seconds", "0")
    assert done.returncode == 3, "green means that something was checked"
    assert done.stderr.endswith("nothing was checked: the limit of 0 seconds was reached\n")


def run_pytest(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--market-index-url={url}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_pytest_has_a_test_for_each_rule(tmp_path: Path):
    double = Double()
    PLANTED[Rule.SUMS]["sums"](double)
    PLANTED[Rule.ASKS]["highest first"](double)
    with foreign(double) as url:
        done = run_pytest(tmp_path, url)
    assert done.returncode == 1
    assert "::market-index::asks" in done.stdout
    assert "1 failed, " in done.stdout
    assert " xfailed in " in done.stdout, "a warning is no failure"


def test_pytest_names_a_service_that_cannot_be_read(tmp_path: Path):
    done = run_pytest(tmp_path, "http://127.0.0.1:9")
    assert "http://127.0.0.1:9: the pair list cannot be read" in done.stdout
    assert f"{len(Rule)} failed in " in done.stdout
