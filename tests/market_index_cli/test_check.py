"""`market-index check` and `pytest --market-index-url`, against our own service and foreign ones on real sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from market_index import LiveIndex
from market_index.contract import Request, Rule
from market_index_feeds import open_feed, service_requests
from tests.apps import composed
from tests.command import SAMPLE, invoke
from tests.market_index.contract.double import BOOKS, Double, edited
from tests.market_index.contract.planted import FIRST, PLANTED, bare, got, status
from tests.service import served


@contextmanager
def foreign(double: Double, key: str = "") -> Iterator[str]:
    """Serve a double by the standard library: HTTP/1.0 without lengths."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            condition = {"If-None-Match": self.headers.get("If-None-Match", "")}
            response = double(Request(self.path, self.command, condition))
            self.send_response(response.status if self.headers.get("X-API-Key", "") == key else 401)
            for name, text in response.headers.items():
                if name != "content-length":
                    self.send_header(name, text)
            self.end_headers()
            self.wfile.write(response.body)

        do_HEAD = do_GET  # noqa: N815  # the name is that of http.server

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_requests, "PAUSE_SECONDS", 0.01)


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
    with foreign(double) as url:
        done, strict = invoke("check", url), invoke("check", url, "--strict")
    assert (done.returncode, "FAILED" in done.stdout) == (0, False), done.stdout
    assert (strict.returncode, "FAILED          decision 20 " in strict.stdout) == (1, True)
    assert "FAILED          contract" not in strict.stdout


def test_a_fault_is_shown_with_the_request_and_what_was_expected():
    double = Double()
    PLANTED[Rule.ASKS]["highest first"](double)
    with foreign(double) as url:
        done, as_json = invoke("check", url), invoke("check", url, "--json")
    assert done.returncode == as_json.returncode == 1
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("FAILED"))
    assert Rule.ASKS.text in lines[at]
    assert lines[at + 1].startswith("    GET /trading-view/order-book?base=ADA&quote=")
    assert lines[at + 2 : at + 4] == ["      expected: asks[1].price after 0.002", "      came:     '0.00013'"]
    (failed,) = [one for one in json.loads(as_json.stdout)["rules"] if one["outcome"] == "failed"]
    assert (failed["rule"], failed["source"]) == ("asks", Rule.ASKS.source)
    assert failed["faults"][0]["expected"] == "asks[1].price after 0.002"


NOTHING = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([NOTHING], f"Error: {NOTHING}: the pair list cannot be read: no response: All connection attempts failed\n"),
        ([NOTHING, "--seconds", "0"], f"Error: {NOTHING}: nothing was checked: the limit of 0 seconds was reached\n"),
        ([f"kupo:{NOTHING}", "--seconds", "0"], f"Error: kupo:{NOTHING}: the limit of 0 seconds was reached\n"),
        (["none.ndjson"], "Error: none.ndjson cannot be opened: No such file or directory\n"),
        (
            ["sample:"],
            "Error: sample: cannot be opened: lines of order books or of events are checked, got the sample\n",
        ),
    ],
)
def test_a_source_that_cannot_be_read_is_exit_code_3(arguments: list[str], message: str):
    done = invoke("check", *arguments)
    assert (done.returncode, done.stderr) == (3, message)


def test_headers_are_sent(tmp_path: Path):
    (tmp_path / "headers").write_text("X-API-Key: secret\n")
    with foreign(Double(), key="secret") as url:
        denied = invoke("check", url)
        assert (denied.returncode, "the pair list cannot be read: status 401" in denied.stderr) == (3, True)
        assert invoke("check", url, "--headers", tmp_path / "headers").returncode in {0, 1}


@pytest.mark.parametrize(
    ("source", "option"),
    [
        ("a.ndjson", "--strict"),
        ("orders:-", "--headers=x"),
        ("a.ndjson", "--seconds=1"),
        (f"kupo:{NOTHING}", "--strict"),
    ],
)
def test_an_option_without_effect_is_rejected(source: str, option: str):
    done = invoke("check", source, option)
    assert (done.returncode, f"{option.partition('=')[0]} has no effect" in done.stderr) == (2, True)


def late_list(double: Double) -> None:
    """Change a spot price, which the list shows after 0.3 s."""
    changed: list[float] = []

    def find(base: str, quote: str) -> Any:
        if (base, quote) != FIRST:
            return BOOKS.get((base, quote))
        changed.append(monotonic())
        return ("0.5", *BOOKS[FIRST][1:])

    def shown(pairs: Any) -> Any:
        is_late = not changed or monotonic() < changed[0] + 0.3
        return pairs if is_late else {"pairs": [{**pairs["pairs"][0], "last_spot": "0.5"}, *pairs["pairs"][1:]]}

    double.find = find  # type: ignore[method-assign]
    edited("pair_list", shown)(double)


def test_pytest_has_a_test_for_each_rule(tmp_path: Path):
    double, limited = Double(), Double()
    for plant in (PLANTED[Rule.SUMS]["sums"], PLANTED[Rule.ASKS]["highest first"], late_list):
        plant(double)
    got(lambda _, found: status(429)(found) if len(limited.requests) > 30 else found)(limited)
    # Without the other plugins, pytest starts in a third of the time.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "market_index_cli.pytest_plugin"}
    with foreign(double) as url, foreign(limited) as limited_url:
        of = {url: run_pytest(tmp_path, url)}
        of |= {name: run_pytest(tmp_path, name, **alone) for name in (limited_url, NOTHING)}
    assert [done.returncode for done in of.values()] == [1, 1, 1]
    assert "::market-index::asks" in of[url].stdout
    assert "1 failed, " in of[url].stdout, "a list that is late is no failure"
    assert " xfailed in " in of[url].stdout, "a warning is no failure"
    assert "not checked: the service limits the rate of requests" in of[limited_url].stdout
    assert f"{NOTHING}: the pair list cannot be read" in of[NOTHING].stdout


def run_pytest(folder: Path, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--market-index-url={url}"]
    variables = os.environ | environment
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
