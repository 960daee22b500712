"""Limits on the size and the duration of a request head and on the number of connections, and cached responses."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import pairwise
from threading import Event
from typing import Any

import pytest
from anyio import to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from market_index import LiveIndex
from market_index_cli.server import http_server
from market_index_cli.server.http_server import HEAD_SECONDS, MAX_HEAD_BYTES, Server, connections_allowed
from market_index_http import create_app, find_response
from tests.market_index_cli.server.fakes import Loop, connected
from tests.service import Client, Restartable, Service, served
from tests.waiting import DEADLINE_SECONDS, WITHOUT_SHRINKING, eventually

LIST = b"GET /trading-view/pair-list HTTP/1.1\r\nHost: test\r\n"
OTHER = b"GET /nothing HTTP/1.1\r\nHost: test\r\n\r\n"


class Slow:
    """An app that responds with 404 once `resume` is set."""

    def __init__(self) -> None:
        self.answering, self.resume = Event(), Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.answering.set()
        await to_thread.run_sync(self.resume.wait, DEADLINE_SECONDS)
        await create_app(LiveIndex())(scope, receive, send)


@contextmanager
def slow(**options: Any) -> Iterator[tuple[Slow, Service]]:
    app = Slow()
    with served(app, Server(app, **options)) as service, ExitStack() as stack:
        stack.callback(app.resume.set)
        yield app, service


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served(create_app(LiveIndex())) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with closing(Client(service.port)) as client:
        yield client


def all_of(connection: socket.socket) -> bytes:
    """Return what the server sends until it closes the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


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


def test_metrics_that_fail_do_not_end_the_server_and_are_logged_once(caplog: pytest.LogCaptureFixture):
    connections = []

    def fail(count: int) -> None:
        connections.append(count)
        raise RuntimeError("no metrics")

    server = Server(create_app(LiveIndex()), on_second=fail)
    for _ in range(3):
        asyncio.run(server.each_second())
    assert connections == [0, 0, 0]
    assert caplog.text.count("the metrics of this process cannot be updated") == 1
    assert caplog.text.count("RuntimeError: no metrics") == 1


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


class TestInvalid:
    """Data that is no HTTP request."""

    @pytest.mark.decision(18)
    @pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00"])
    def test_it_is_400_with_the_error_body(self, client: Client, sent: bytes):
        answer = client.send(sent)
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert answer.json == {"error": "Invalid HTTP request received."}
        assert is_closed(client.socket)

    def test_no_error_is_sent_within_another_response(self):
        with slow() as (app, service), closing(Client(service.port)) as client:
            client.socket.sendall(OTHER)
            assert app.answering.wait(DEADLINE_SECONDS)
            client.socket.sendall(b"nonsense\r\n\r\n")
            assert all_of(client.socket) == b""


@pytest.fixture
def server() -> Server:
    app = create_app(LiveIndex())
    return Server(app, respond=partial(find_response, app), max_connections=3)


class TestTime:
    """A request head must arrive within `HEAD_SECONDS` after the start of its connection or the last response."""

    @pytest.mark.parametrize("before", [b"", LIST + b"\r\n", LIST + b"Content-Length: 100\r\n\r\nab"])
    def test_single_bytes_do_not_extend_the_deadline(self, server: Server, before: bytes):
        loop = Loop()
        connection = connected(server, loop)
        connection.data_received(before)
        loop.run()
        for byte in LIST.replace(b"GET", b"POST"):
            loop.now += 0.1
            connection.data_received(bytes([byte]))
        server.close_overdue(100 + HEAD_SECONDS - 0.1)
        assert not connection.transport.is_closed
        server.close_overdue(100 + HEAD_SECONDS)
        assert connection.transport.is_closed

    def test_responses_that_are_being_made_have_no_deadline(self, server: Server):
        loop = Loop()
        connection = connected(server, loop)
        connection.data_received(OTHER * 2)
        for count in (1, 2):
            loop.run()
            assert loop.tasks == count
            server.close_overdue(1e9)
            assert not connection.transport.is_closed
            connection.on_response_complete()
        server.close_overdue(1e9)
        assert connection.transport.is_closed

    def test_real_clients_that_send_no_head_are_disconnected(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(http_server, "HEAD_SECONDS", 0)
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
        loop.run()
        for other in (second, third, first):
            assert not other.transport.is_closed
            made = connected(server, loop)
            assert (other.transport.is_closed, made.transport.is_closed) == (True, False)
            other.connection_lost(None)

    def test_a_connection_that_its_client_has_closed_does_not_wait(self, server: Server):
        loop = Loop()
        first, second, *_ = (connected(server, loop) for _ in range(3))
        first.connection_lost(None)
        connected(server, loop)
        assert not second.transport.is_closed
        connected(server, loop)
        assert second.transport.is_closed

    def test_real_connections(self):
        counted: list[int] = []
        with slow(max_connections=2, count=lambda _, status: counted.append(status)) as running, ExitStack() as stack:
            app, service = running

            def connect(sent: bytes) -> Client:
                client = stack.enter_context(closing(Client(service.port)))
                client.socket.sendall(sent)
                return client

            busy, idle, second = connect(OTHER), connect(b""), connect(OTHER)
            assert is_closed(idle.socket)
            rejected = stack.enter_context(closing(Client(service.port)))
            response = rejected.send(b"")
            assert (response.status, response.json) == (503, {"error": "Too many connections"})
            assert counted == [503]
            app.resume.set()
            assert [one.send(b"").status for one in (busy, second)] == [404, 404]

    @pytest.mark.parametrize(("open_files", "allowed"), [(1024, 960), (128, 64)])
    def test_open_files_are_reserved_for_feeds(self, open_files: int, allowed: int, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(resource, "getrlimit", lambda _: (open_files, 2**20))
        assert connections_allowed() == allowed


class TestCachedResponses:
    """Responses that are sent without a task."""

    def sent(self, server: Server, request: bytes, prepare: Callable[[Any], object] = lambda _: None) -> list[bytes]:
        """Return what is written in response to a request; empty if it is left to uvicorn."""
        loop = Loop()
        connection = connected(server, loop)
        connection.data_received(request)
        prepare(connection)
        loop.run()
        written: list[bytes] = connection.transport.written
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
        assert self.sent(server, LIST + b"\r\n", lambda connection: connection.transport.close()) == []

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


def test_a_server_works_each_second_while_it_serves_and_ends_with_its_shutdown_call():
    counts: list[int] = []
    ended = Event()
    app = create_app(LiveIndex())
    server = Server(app, respond=partial(find_response, app), on_second=counts.append, on_shutdown=ended.set)
    with served(app, server) as service, closing(Client(service.port)) as client:
        assert client.request("/trading-view/pair-list").status == 200
        eventually(lambda: 1 in counts)
        assert not ended.is_set()
    assert ended.is_set()


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
        eventually(lambda: not server.server_state.connections)
    assert not caplog.text
