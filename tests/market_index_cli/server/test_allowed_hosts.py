"""Requests with allowed hosts and with other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_cli.server.allowed_hosts import AllowedHosts
from market_index_http import create_app
from tests.command import SAMPLE, invoke, running
from tests.service import Client, HttpResponse, Service, served


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served(AllowedHosts(create_app(LiveIndex()), ["index.example", "[::1]"])) as running:
        yield running


def fetch(service: Service, fields: str) -> HttpResponse:
    with closing(Client(service.port)) as client:
        return client.send(f"GET /trading-view/pair-list HTTP/1.1\r\n{fields}\r\n".encode())


@pytest.mark.parametrize("host", ["index.example", "INDEX.example:8000", "index.example:", "[::1]", "[::1]:80"])
def test_an_allowed_host_is_accepted_with_any_port(service: Service, host: str):
    assert fetch(service, f"Host: {host}\r\n").status == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":80",
        "page.example",
        "index.example.page.example",
        "index.example@page.example",
        "index.example:http",
        "index.example:80:80",
        "index.example/",
        "::1",
        "[::1",
        "[::1]80",
        "[::2]:80",
    ],
)
def test_any_other_host_is_400(service: Service, host: str):
    answer = fetch(service, f"Host: {host}\r\n")
    assert answer.status == 400
    assert answer.json["error"] == f"The Host field must be an allowed host, got {host!r}"


def test_a_request_without_exactly_one_host_is_400(service: Service):
    assert fetch(service, "").json["error"].endswith("got []")
    twice = "Host: index.example\r\n" * 2
    assert fetch(service, twice).json["error"].endswith("got ['index.example', 'index.example']")


def test_the_command_allows_any_host_by_default(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0) as command:
        assert fetch(command.service, "Host: page.example\r\n").status == 200
    with running(tmp_path, SAMPLE, "--port", 0, "--allowed-host", "one", "--allowed-host", "[::1]") as command:
        statuses = [fetch(command.service, f"Host: {host}\r\n").status for host in ("one", "[::1]:1", "page.example")]
        assert statuses == [200, 200, 400]


@pytest.mark.parametrize("host", ["page.example:8000", "::1"])
def test_the_command_rejects_a_host_that_would_never_match(host: str):
    done = invoke("serve", SAMPLE, "--allowed-host", host)
    assert done.returncode == 2
    expected = f"a host must be a name or an address without a port, such as example.com or [::1], got '{host}'"
    assert expected in done.stderr
