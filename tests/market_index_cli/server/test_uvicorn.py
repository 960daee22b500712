"""What the private names of uvicorn mean that `http_server` uses: uvicorn's own protocol on a fake transport."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from market_index_cli.server.http_server import Server
from tests.market_index_cli.server.fakes import Loop, connected

GET = b"GET /path?query HTTP/1.1\r\nHost: test\r\n\r\n"


class Recording(HttpToolsProtocol):
    """Records the calls that `Connection` overrides. With `rejects`, the parser is stopped at the end of a head."""

    rejects = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.started: list[Any] = []
        self.heads: list[tuple[bytes, list[tuple[bytes, bytes]]]] = []
        self.bodies: list[bytes] = []
        self.errors: list[str] = []

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        assert app is self.config.loaded_app
        self.started.append(cycle)

    def on_headers_complete(self) -> None:
        self.heads.append((self.url, self.headers))
        if self.rejects:
            raise ValueError
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.bodies.append(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        self.errors.append(msg)


async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError


@pytest.fixture
def connection() -> Recording:
    made: Recording = connected(Server(app), Loop(), Recording)
    return made


def test_a_complete_head_starts_its_response(connection: Recording):
    connection.data_received(GET[:30])
    assert connection.heads == connection.started == []
    connection.data_received(GET[30:])
    assert connection.heads == [(b"/path?query", [(b"host", b"test")])]
    (cycle,) = connection.started
    assert cycle is connection.cycle
    assert (cycle.scope["method"], cycle.scope["path"], cycle.scope["query_string"]) == ("GET", "/path", b"query")
    assert (cycle.keep_alive, cycle.response_started, cycle.response_complete) == (True, False, False)
    assert cycle.default_headers is connection.server_state.default_headers


@pytest.mark.parametrize("head", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"])
def test_a_response_that_must_close_its_connection_is_not_kept_alive(connection: Recording, head: bytes):
    connection.data_received(head)
    assert not connection.started[0].keep_alive


def test_a_shutdown_closes_an_idle_connection_and_marks_the_running_response(connection: Recording):
    connection.data_received(GET)
    connection.shutdown()
    assert (connection.transport.is_closing(), connection.started[0].keep_alive) == (False, False)
    connection.started[0].response_complete = True
    connection.shutdown()
    assert connection.transport.is_closing()


def test_pipelined_requests_start_one_after_another_as_responses_complete(connection: Recording):
    connection.data_received(GET * 3)
    assert (len(connection.started), len(connection.pipeline)) == (1, 2)
    for count in (2, 3):
        connection.started[-1].response_started = connection.started[-1].response_complete = True
        connection.on_response_complete()
        assert len(connection.started) == count
    assert not connection.pipeline
    assert connection.cycle is connection.started[-1]


def test_parts_of_a_body_are_reported(connection: Recording):
    connection.data_received(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert connection.bodies == [b"abc", b"de"]


@pytest.mark.parametrize("rejects", [False, True])
def test_a_parser_that_fails_or_is_stopped_sends_the_error_once(connection: Recording, *, rejects: bool):
    connection.rejects = rejects
    connection.data_received(GET if rejects else b"nonsense\r\n\r\n")
    assert connection.errors == ["Invalid HTTP request received."]
    assert connection.started == []


def test_writing_is_paused_until_the_client_reads(connection: Recording):
    connection.pause_writing()
    assert connection.flow.write_paused
    connection.resume_writing()
    assert not connection.flow.write_paused


def test_open_connections_are_counted(connection: Recording):
    assert connection.connections == connection.server_state.connections == {connection}
    connection.connection_lost(None)
    assert not connection.server_state.connections


def test_status_lines_are_ready_to_be_written():
    assert STATUS_LINE[431] == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
