"""Cached responses, the end of a server, its log of requests, and versions of uvicorn with other private names."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http import httptools_impl

from market_index import LiveIndex
from market_index_cli.server import cached_responses, http_server
from market_index_cli.server.http_server import Server
from market_index_http import create_app, find_response
from tests.market_index_cli.server.fakes import LIST, OTHER, Loop, all_of, connected, slow
from tests.service import Client, Restartable, served
from tests.waiting import DEADLINE_SECONDS, eventually


def test_metrics_that_fail_do_not_end_the_server_and_are_logged_once(caplog: pytest.LogCaptureFixture):
    calls: list[None] = []

    def fail() -> None:
        calls.append(None)
        raise RuntimeError("no metrics")

    server = Server(create_app(LiveIndex()), on_second=fail)
    for _ in range(3):
        asyncio.run(server.each_second())
    assert len(calls) == 3
    assert caplog.text.count("the metrics of this process cannot be updated") == 1
    assert caplog.text.count("RuntimeError: no metrics") == 1


@pytest.mark.decision(18)
@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_what_is_not_http_is_400_with_the_error_body(client: Client, sent: bytes):
    answer = client.send(sent)
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json == {"error": "Invalid HTTP request received."}
    assert client.socket.recv(1) == b""


def test_no_error_is_sent_within_another_response():
    with slow() as (app, service, _), closing(Client(service.port)) as client:
        client.socket.sendall(OTHER)
        assert app.answering.wait(DEADLINE_SECONDS)
        client.socket.sendall(b"nonsense\r\n\r\n")
        assert all_of(client.socket) == b""


class TestCachedResponses:
    """Responses that are sent without a task."""

    def sent(self, server: Server, request: bytes, prepare: Callable[[Any], object] = lambda _: None) -> list[bytes]:
        """Return what is written in response to a request; empty if it is left to uvicorn."""
        loop = Loop()
        connection = connected(server, loop)
        connection.data_received(request)
        prepare(connection)
        loop.run()
        written: list[bytes] = connection.channel.written
        return written

    @pytest.mark.parametrize("requests", [1, 3])
    def test_each_cached_response_is_written_in_one_piece(self, server: Server, requests: int):
        responses = self.sent(server, (LIST + b"\r\n") * requests)
        assert len(responses) == requests
        for response in responses:
            assert response.startswith(b"HTTP/1.1 200 OK\r\n")
            assert response.endswith(b'\r\n\r\n{"pairs":[]}')

    @pytest.mark.parametrize("request_head", [OTHER, LIST + b"Connection: close\r\n\r\n"])
    def test_other_responses_are_left_to_uvicorn(self, server: Server, request_head: bytes):
        assert self.sent(server, request_head) == []

    @pytest.mark.parametrize("call", ["pause_writing", "shutdown"])
    def test_a_response_that_must_wait_or_close_is_left_to_uvicorn(self, server: Server, call: str):
        assert self.sent(server, LIST + b"\r\n", lambda connection: getattr(connection, call)()) == []

    def test_nothing_is_written_to_a_connection_that_was_closed_meanwhile(self, server: Server):
        assert self.sent(server, LIST + b"\r\n", lambda connection: connection.channel.close()) == []

    def test_they_are_those_of_the_app(self, client: Client):
        """With an access log, the app is called."""
        app = create_app(LiveIndex())
        with served(app, Server(app, access_log=True)) as service, closing(Client(service.port)) as other:
            for method in (b"GET", b"HEAD"):
                for fields in (b"", b"If-None-Match: *\r\n", b"Accept-Encoding: gzip\r\n"):
                    request = LIST.replace(b"GET", method) + fields + b"\r\n"
                    answer, called = (one.send(request, method.decode()) for one in (client, other))
                    assert (answer.status, answer.body) == (called.status, called.body)
                    assert answer.headers | {"date": ""} == called.headers | {"date": ""}


def test_a_shutdown_waits_for_a_response_no_longer_than_its_timeout(monkeypatch: pytest.MonkeyPatch):
    answering = Event()

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        answering.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(http_server, "GRACE_SECONDS", 0)
    running = Restartable(app, Server(app))
    with closing(Client(running.port)) as client:
        client.socket.sendall(OTHER)
        assert answering.wait(DEADLINE_SECONDS)
        running.stop()


class TestOtherVersionsOfUvicorn:
    """A name that uvicorn has renamed costs speed, and no limit."""

    @pytest.mark.parametrize("function", cached_responses._USED)
    def test_each_missing_name_is_noticed_and_logged(
        self, function: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ):
        owner, _, name = function.partition(".")
        monkeypatch.setattr(getattr(httptools_impl, owner), name, lambda *_, **__: None)
        names = sorted(cached_responses._USED[function])
        assert cached_responses.missing_names() == names
        app = create_app(LiveIndex())
        assert not Server(app, respond=partial(find_response, app)).has_cached_responses
        assert f"has no {', '.join(names)}: responses are sent more slowly" in caplog.text

    def test_a_missing_function_is_noticed(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delattr(httptools_impl.HttpToolsProtocol, "on_headers_complete")
        assert cached_responses.missing_names() == ["HttpToolsProtocol.on_headers_complete"]

    def test_the_limits_hold_with_other_names(self):
        command = [sys.executable, "-m", "pytest", "-p", "tests.market_index_cli.server.renamed"]
        path = Path(__file__).with_name("test_limits.py")
        done = subprocess.run([*command, path], capture_output=True, text=True, cwd=path.parents[3], check=False)
        assert done.returncode == 0, done.stdout
        assert "uvicorn has other names" in done.stdout


def test_a_request_is_logged_with_its_duration_and_a_long_target_is_cut(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "market_index_cli.requests")
    with served(create_app(LiveIndex()), Server(create_app(LiveIndex()), access_log=True)) as service:
        with closing(Client(service.port)) as client:
            assert client.request("/nothing", headers=f"X: {'x' * 70_000}\r\n").status == 431, "it is not logged"
        assert service.request(f"/nothing?{'x' * 60_000}").status == 404
        eventually(lambda: caplog.records)
    (record,) = caplog.records
    assert record.getMessage().startswith("127.0.0.1:")
    assert f'"GET /nothing?{"x" * 247}... HTTP/1.1" 404 ' in record.getMessage()
    assert isinstance(record.args, tuple)
    assert isinstance(record.args[-1], float)
