"""Limits on the size and the duration of a request head, on the number of connections, and on incomplete responses.

The whole file is also run with a uvicorn whose private names are others: see `test_http_server.py`.
"""

from __future__ import annotations

import re
import resource
import socket
from contextlib import ExitStack, closing, suppress
from itertools import pairwise
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from market_index import LiveIndex
from market_index_cli.server import limits
from market_index_cli.server.http_server import Server, connections_allowed
from market_index_cli.server.limits import HEAD_SECONDS, MAX_HEAD_BYTES
from market_index_http import create_app
from tests.market_index_cli.server.fakes import LIST, OTHER, Loop, all_of, connected, slow
from tests.service import Client, Service, served
from tests.waiting import DEADLINE_SECONDS, WITHOUT_SHRINKING, eventually


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closed the connection; waits for it."""
    with suppress(ConnectionResetError):
        all_of(connection)
    return True


def statuses(received: bytes) -> list[bytes]:
    return re.findall(rb"HTTP/1.1 (\d+)", received)


def head(size: int) -> bytes:
    """Return a request whose head counts as `size` bytes: the target, and each field with its separators."""
    target, host = len("/trading-view/pair-list"), len("host: test\r\n")
    return LIST + b"X: %s\r\n\r\n" % (b"x" * (size - target - host - len("x: \r\n")))


class TestSize:
    """At most 64 KiB of a request head."""

    @pytest.mark.decision(25)
    def test_a_head_above_the_limit_is_431_and_the_connection_is_closed(self, client: Client):
        for _ in range(2):
            assert client.send(head(MAX_HEAD_BYTES)).status == 200
        answer = client.send(head(MAX_HEAD_BYTES + 1))
        assert (answer.status, answer.headers["connection"]) == (431, "close")
        assert answer.json == {"error": "The request head must have at most 65536 bytes"}
        assert is_closed(client.socket)

    @pytest.mark.parametrize(
        "piece",
        [
            LIST + b"X: x\r\n" * 1000,
            b"\r\n" * 4096,
            LIST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + b"X: x\r\n" * 10_000,
        ],
        ids=["fields", "line ends", "trailers"],
    )
    def test_a_client_that_never_ends_a_head_is_disconnected(self, client: Client, piece: bytes):
        client.socket.sendall(piece)
        with suppress(ConnectionError):
            for _ in range(10_000):
                client.socket.sendall(piece[-6000:])
        assert is_closed(client.socket)

    def test_a_body_is_not_counted(self, client: Client):
        post = LIST.replace(b"GET", b"POST") + b"Content-Length: 1000000\r\n\r\n"
        assert client.send(post + b"x" * 1_000_000).status == 405
        assert client.request("/trading-view/pair-list").status == 200

    @settings(max_examples=10, phases=WITHOUT_SHRINKING, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_valid_requests_are_answered_however_their_bytes_arrive(self, service: Service, data: st.DataObject):
        chunked = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: trailer\r\n\r\n"
        known = {head(60_000): b"200", LIST + b"\r\n": b"200", OTHER: b"404", chunked: b"404"}
        requests = data.draw(st.lists(st.sampled_from(list(known)), min_size=1, max_size=5))
        sent = b"".join(requests) + LIST + b"Connection: close\r\n\r\n"
        ends = sorted(data.draw(st.sets(st.integers(1, len(sent)), max_size=20)) | {len(sent)})
        with socket.create_connection(("127.0.0.1", service.port), timeout=DEADLINE_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start, end in pairwise([0, *ends]):
                connection.sendall(sent[start:end])
            received = all_of(connection)
        assert statuses(received) == [*map(known.__getitem__, requests), b"200"]

    def test_many_pipelined_requests_are_answered_in_order(self, client: Client):
        """Cached responses, and one that is not, so that all others wait for it."""
        client.socket.sendall(OTHER + (LIST + b"\r\n") * 3_000 + LIST + b"Connection: close\r\n\r\n")
        assert statuses(all_of(client.socket)) == [b"404", *[b"200"] * 3_001]


class TestTime:
    """A request head must arrive within `HEAD_SECONDS` after the start of its connection or the last response."""

    @pytest.mark.parametrize("before", [b"", LIST + b"\r\n", LIST + b"Content-Length: 100\r\n\r\nab"])
    def test_single_bytes_do_not_extend_the_deadline(self, server: Server, before: bytes):
        loop = Loop()
        connection = connected(server, loop)
        connection.data_received(before)
        if before:
            connection.end_response()
        for byte in LIST.replace(b"GET", b"POST"):
            loop.now += 0.1
            connection.data_received(bytes([byte]))
        loop.now = 100 + HEAD_SECONDS - 0.1
        server.clients.close_overdue()
        assert not connection.channel.is_closed
        loop.now = 100 + HEAD_SECONDS
        server.clients.close_overdue()
        assert connection.channel.is_closed

    def test_responses_that_are_being_made_have_no_deadline(self, server: Server):
        loop = Loop()
        connection = connected(server, loop)
        connection.data_received(OTHER * 2)
        loop.now = 1e9
        for _ in range(2):
            server.clients.close_overdue()
            assert not connection.channel.is_closed
            connection.end_response()
        loop.now = 2e9
        server.clients.close_overdue()
        assert connection.channel.is_closed

    def test_real_clients_that_send_no_head_are_disconnected(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(limits, "HEAD_SECONDS", 0)
        with served(create_app(LiveIndex())) as service, ExitStack() as stack:
            clients = [stack.enter_context(closing(Client(service.port))) for _ in range(3)]
            for client, sent in zip(clients, (b"", b"\r\n", LIST), strict=True):
                with suppress(ConnectionError):
                    client.socket.sendall(sent)
                assert is_closed(client.socket)


class TestNumber:
    """At most `max_connections` connections."""

    def test_the_connection_that_waited_longest_is_closed(self, server: Server):
        loop = Loop()
        first, second, third = (connected(server, loop) for _ in range(3))
        # The first one is idle again, after the others have connected.
        first.data_received(LIST + b"\r\n")
        first.end_response()
        for other in (second, third, first):
            assert not other.channel.is_closed
            made = connected(server, loop)
            assert (other.channel.is_closed, made.channel.is_closed) == (True, False)
            other.connection_lost(None)

    def test_a_client_that_still_receives_a_response_is_closed_last(self, server: Server):
        loop = Loop()
        downloading, stuck, idle = (connected(server, loop) for _ in range(3))
        for one in (downloading, stuck):
            one.channel.unsent = 1_000
        for closed in (idle, downloading, stuck):
            made = connected(server, loop)
            made.channel.unsent = 1_000
            assert closed.channel.is_closed
            closed.connection_lost(None)

    def test_a_connection_that_its_client_has_closed_does_not_wait(self, server: Server):
        loop = Loop()
        first, second, *_ = (connected(server, loop) for _ in range(3))
        first.connection_lost(None)
        connected(server, loop)
        assert not second.channel.is_closed
        connected(server, loop)
        assert second.channel.is_closed

    def test_real_connections(self):
        with slow(max_connections=2) as running, ExitStack() as stack:
            app, service, server = running

            def connect(sent: bytes) -> Client:
                client = stack.enter_context(closing(Client(service.port)))
                client.socket.sendall(sent)
                return client

            busy, idle, second = connect(OTHER), connect(b""), connect(OTHER)
            assert is_closed(idle.socket)
            rejected = stack.enter_context(closing(Client(service.port)))
            response = rejected.send(b"")
            assert (response.status, response.json) == (503, {"error": "Too many connections"})
            assert server.clients.responses["other"].statuses[503] == 1
            app.resume.set()
            assert [one.send(b"").status for one in (busy, second)] == [404, 404]

    @pytest.mark.parametrize(("open_files", "allowed"), [(1024, 960), (128, 64)])
    def test_open_files_are_reserved_for_feeds(self, open_files: int, allowed: int, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(resource, "getrlimit", lambda _: (open_files, 2**20))
        assert connections_allowed() == allowed


def test_a_response_that_its_app_does_not_complete_is_cut_also_if_its_client_does_not_read(
    caplog: pytest.LogCaptureFixture,
):
    """As of a stream whose client accepts nothing. uvicorn would wait for the client for ever."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(2**26), "more_body": True})
        written.set()

    server, written = Server(app), Event()
    with served(app, server) as service, closing(Client(service.port)) as client:
        client.socket.sendall(OTHER)
        assert written.wait(DEADLINE_SECONDS)
        eventually(lambda: not server.clients.connections)
    assert "ASGI" not in caplog.text, "uvicorn knows that the client is disconnected"
