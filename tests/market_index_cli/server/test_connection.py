"""Limits on the size and the duration of requests, and on the number of connections, through real sockets."""

from __future__ import annotations

import asyncio
import re
import select
import socket
from asyncio import Transport
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event, Semaphore
from traceback import walk_stack
from typing import Any, Literal

import pytest
import uvicorn
from anyio import to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from market_index import LiveIndex, OrderBook, wire
from market_index_cli.descriptors import RESERVED_DESCRIPTORS
from market_index_cli.server.connection import (
    MAX_HEAD_BYTES,
    MAX_JOINED_BYTES,
    MAX_PARAMETERS,
    MAX_TARGET_BYTES,
    ClientLimits,
    JoinedWrites,
    LimitedConnection,
    connections_allowed,
)
from market_index_cli.server.http_server import Server
from market_index_http import create_app
from tests.command import SAMPLE, running
from tests.market_index_feeds.made_up import pair
from tests.service import Client, Service, served
from tests.waiting import DEADLINE_SECONDS, WITHOUT_SHRINKING, eventually, in_thread, raised_in_thread

LIST = b"GET /trading-view/pair-list HTTP/1.1\r\nHost: test\r\n"
BOOK = f"GET /trading-view/order-book?base={pair(1).base}&quote=ADA HTTP/1.1\r\nHost: test\r\n".encode()


def deep_book() -> tuple[LiveIndex, bytes]:
    """Return a book whose response exceeds the buffers of a connection, and the start of a request for it."""
    book = OrderBook.from_levels(pair(1), bids=[(str(price), 2**60) for price in range(1, 150_000)])
    target = f"/trading-view/order-book?base={book.pair.base}&quote=ADA"
    return LiveIndex([book]), f"GET {target} HTTP/1.1\r\nHost: test\r\n".encode()


DEEP = b"GET /deep HTTP/1.1\r\nHost: test\r\n"


async def in_one_message(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with one message that exceeds the buffers of a connection. No body of ours does, but other apps do."""
    content = bytes(10_000_000)
    headers = [(b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class Slow:
    """An app that responds once `resume` is set."""

    def __init__(self) -> None:
        self.answering, self.resume = Event(), Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.answering.set()
        await to_thread.run_sync(self.resume.wait, DEADLINE_SECONDS)
        await create_app(LiveIndex())(scope, receive, send)


@contextmanager
def limited(**limits: int) -> Iterator[Service]:
    app = create_app(LiveIndex())
    with served(app, Server(app, limits=ClientLimits(**limits))) as service:
        yield service


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with limited(head_seconds=600) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    client = Client(service.port)
    yield client
    client.close()


def all_of(connection: socket.socket) -> bytes:
    """Return what the server sends until it closes the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def statuses(received: bytes) -> list[bytes]:
    return re.findall(rb"HTTP/1.1 (\d+)", received)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closed the connection; waits for it."""
    with suppress(ConnectionResetError):
        all_of(connection)
    return True


class TestHead:
    def head(self, size: int) -> bytes:
        """Return a request whose head counts as `size` bytes: the target, and each field with its separators."""
        target, host = len("/trading-view/pair-list"), len("host: test\r\n")
        return LIST + b"X: %s\r\n\r\n" % (b"x" * (size - target - host - len("x: \r\n")))

    def test_a_head_at_the_limit_is_answered(self, client: Client):
        assert client.send(self.head(MAX_HEAD_BYTES)).status == 200
        assert client.send(self.head(MAX_HEAD_BYTES)).status == 200

    @pytest.mark.decision(25)
    def test_a_head_above_the_limit_is_431_and_the_connection_is_closed(self, client: Client):
        answer = client.send(self.head(MAX_HEAD_BYTES + 1))
        assert (answer.status, answer.headers["connection"]) == (431, "close")
        assert answer.json == {"error": "The request head must have at most 65536 bytes"}
        assert is_closed(client.socket)

    @pytest.mark.parametrize("field", [b"X: x\r\n", b"X: %s\r\n" % (b"x" * 1000), b"x" * 500_000])
    def test_an_endless_head_is_431(self, client: Client, field: bytes):
        assert client.send(LIST + field * (500_000 // len(field))).status == 431
        assert is_closed(client.socket)

    def test_a_client_that_continues_to_send_after_431_is_disconnected(self, client: Client):
        with pytest.raises(ConnectionError):
            client.socket.sendall(LIST + b"x" * 100_000_000)

    def test_line_ends_without_a_request_are_431(self, client: Client):
        assert client.send(b"\r\n" * 50_000).status == 431

    def test_trailers_count(self, client: Client):
        body = b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
        client.socket.sendall(LIST + body)
        with suppress(ConnectionError):
            client.socket.sendall(b"X: x\r\n" * 1_000_000)
        assert is_closed(client.socket)

    def test_a_large_body_is_not_counted_as_a_head(self, client: Client):
        post = LIST.replace(b"GET", b"POST") + b"Content-Length: 1000000\r\n\r\n"
        assert client.send(post + b"x" * 1_000_000).status == 405
        assert client.request("/trading-view/pair-list").status == 200

    @settings(max_examples=20, phases=WITHOUT_SHRINKING, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_valid_requests_are_answered_however_their_bytes_arrive(self, service: Service, data: st.DataObject):
        chunked = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: trailer\r\n\r\n"
        known = {self.head(60_000): b"200", LIST + b"\r\n": b"200", chunked: b"404"}
        requests = data.draw(st.lists(st.sampled_from(list(known)), min_size=1, max_size=5))
        sent = b"".join(requests) + LIST + b"Connection: close\r\n\r\n"
        ends = sorted(data.draw(st.sets(st.integers(1, len(sent)), max_size=20)) | {len(sent)})
        with socket.create_connection(("127.0.0.1", service.port), timeout=DEADLINE_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start, end in pairwise([0, *ends]):
                connection.sendall(sent[start:end])
            received = all_of(connection)
        assert statuses(received) == [*map(known.__getitem__, requests), b"200"]

    def test_pipelined_requests_are_not_counted_as_a_large_head(self, service: Service):
        count = 2_000
        with socket.create_connection(("127.0.0.1", service.port), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall((LIST + b"\r\n") * (count - 1) + LIST + b"Connection: close\r\n\r\n")
            received = all_of(connection)
        assert statuses(received) == [b"200"] * count


class TestTarget:
    def target(self, size: int) -> str:
        return "/" + "x" * (size - 1)

    def test_a_target_at_the_limit_is_answered(self, client: Client):
        assert client.request(self.target(MAX_TARGET_BYTES)).status == 404

    @pytest.mark.decision(25)
    @pytest.mark.parametrize("size", [MAX_TARGET_BYTES + 1, 60_000, 1_000_000])
    def test_a_target_above_the_limit_is_400(self, client: Client, size: int):
        answer = client.request(self.target(size))
        assert (answer.status, answer.json) == (400, {"error": "The request target must have at most 8192 bytes"})
        assert is_closed(client.socket)

    def test_parameters_up_to_the_limit_are_read(self, client: Client):
        answer = client.request("/trading-view/order-book?" + "&".join(["base=ADA"] * MAX_PARAMETERS))
        assert answer.json["error"].startswith("Query parameter 'base' must be given once")

    @pytest.mark.decision(25)
    def test_more_parameters_are_400(self, client: Client):
        answer = client.request("/trading-view/order-book?" + "&".join(["base=ADA"] * (MAX_PARAMETERS + 1)))
        assert (answer.status, answer.json) == (400, {"error": "The query must have at most 32 parameters"})
        assert is_closed(client.socket)


class TestTime:
    @pytest.mark.parametrize("sent", [b"", b"\r\n", LIST, LIST + b"Content-Length: 5\r\n\r\nabc"])
    def test_an_incomplete_request_is_closed(self, sent: bytes):
        with limited(head_seconds=1, keep_alive_seconds=1) as service, closing(Client(service.port)) as client:
            client.socket.sendall(sent)
            assert is_closed(client.socket)

    @pytest.mark.parametrize("byte", [b"x", b"\n"])
    def test_single_bytes_do_not_extend_the_deadline(self, byte: bytes):
        with limited(head_seconds=1) as service, closing(Client(service.port)) as client:
            assert client.request("/trading-view/pair-list").status == 200
            client.socket.settimeout(0.1)

            def is_closed_after_a_byte() -> bool:
                try:
                    client.socket.sendall(byte)
                    return client.socket.recv(1) == b""
                except ConnectionError:
                    return True
                except TimeoutError:
                    return False

            eventually(is_closed_after_a_byte)

    def test_an_idle_connection_is_closed(self):
        live, request = deep_book()
        app = create_app(live)
        limits = ClientLimits(keep_alive_seconds=1, head_seconds=600)
        with served(app, Server(app, limits=limits)) as service, closing(Client(service.port)) as client:
            for _ in range(2):
                assert client.send(request + b"\r\n").status == 200
            assert client.request("/trading-view/pair-list").status == 200
            assert client.send(request + b"\r\n").status == 200
            assert is_closed(client.socket)

    @pytest.mark.parametrize("sent", [b"x", b""])
    def test_a_client_can_read_its_response_after_the_deadline(self, sent: bytes, monkeypatch: pytest.MonkeyPatch):
        overdue = Event()
        really = LimitedConnection.close_or_wait

        def close_or_wait(connection: LimitedConnection) -> None:
            really(connection)
            overdue.set()

        monkeypatch.setattr(LimitedConnection, "close_or_wait", close_or_wait)
        server = Server(in_one_message, limits=ClientLimits(head_seconds=1, keep_alive_seconds=1))
        with served(in_one_message, server) as service, closing(Client(service.port)) as client:
            client.socket.sendall(DEEP + b"Content-Length: 1000000\r\n\r\n")
            assert client.socket.recv(1) == b"H"
            client.socket.sendall(sent)
            assert overdue.wait(DEADLINE_SECONDS)
            client.socket.sendall(sent)
            head, _, body = all_of(client.socket).partition(b"\r\n\r\n")
            assert head.endswith(b"content-length: %d" % len(body))

    @pytest.mark.parametrize("loop", ["auto", "asyncio"])
    @pytest.mark.parametrize("count", [1, 3])
    def test_a_client_that_accepts_nothing_is_closed(
        self, count: int, loop: Literal["auto", "asyncio"], caplog: pytest.LogCaptureFixture
    ):
        live, request = deep_book()
        app = create_app(live)
        server = Server(app, limits=ClientLimits(head_seconds=600, keep_alive_seconds=600, send_seconds=1))
        server.config.loop = loop
        with served(app, server) as service, closing(Client(service.port)) as client:
            client.socket.sendall((request + b"\r\n") * count)
            assert client.socket.recv(1) == b"H"
            eventually(lambda: not server.server_state.connections)
            eventually(lambda: not server.server_state.tasks)
            assert not server._waiting
        assert "Exception" not in caplog.text

    @pytest.mark.thorough
    def test_a_client_that_reads_slowly_gets_its_response(self):
        live, request = deep_book()
        app = create_app(live)
        server = Server(app, limits=ClientLimits(send_seconds=10))
        with served(app, server) as service, closing(Client(service.port)) as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.socket.sendall(request + b"Connection: close\r\n\r\n")
            received, resume = 0, Event()
            while chunk := client.socket.recv(65536):
                received += len(chunk)
                # 15 s in total.
                resume.wait(0.1)
            (book,) = live.current.values()
            assert received > len(wire.order_book_to_json(book))

    def test_a_shutdown_disconnects_only_clients_that_do_not_read(self, caplog: pytest.LogCaptureFixture):
        live, request = deep_book()
        deep, slow = create_app(live), Slow()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await (slow if scope["path"] == "/slow" else deep)(scope, receive, send)

        server = Server(app, limits=ClientLimits(head_seconds=600), unread_seconds=0)
        with served(app, server) as service, ExitStack() as stack:
            unread, waiting = (stack.enter_context(closing(Client(service.port))) for _ in range(2))
            unread.socket.sendall(request + b"\r\n")
            assert unread.socket.recv(1) == b"H"
            waiting.socket.sendall(b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n")
            assert slow.answering.wait(DEADLINE_SECONDS)
            server.should_exit = True
            eventually(lambda: len(server.server_state.connections) == 1)
            slow.resume.set()
            assert waiting.send(b"").status == 404
        assert "Exception" not in caplog.text

    def test_other_systems_have_no_time_limit_for_sending(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
        with limited() as service, closing(Client(service.port)) as client:
            assert client.request("/trading-view/pair-list").status == 200

    def test_a_client_that_sends_a_slow_body_gets_its_response(self):
        with limited(head_seconds=1) as service, closing(Client(service.port)) as client:
            client.socket.sendall(LIST.replace(b"GET", b"POST") + b"Content-Length: 1000000\r\n\r\n")

            def is_closed_after_a_byte() -> bool:
                try:
                    client.socket.sendall(b"x")
                except ConnectionError:
                    return True
                return False

            eventually(is_closed_after_a_byte)
            assert statuses(all_of(client.socket)) == [b"405"]


class TestOrder:
    """Responses are in the order of the requests (RFC 9112, 9.3.2)."""

    LARGE = LIST + b"X: %s\r\n\r\n" % (b"x" * 84_000)
    CHUNKED = LIST.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n"

    @pytest.mark.parametrize(
        ("requests", "expected"),
        [
            (LIST + b"\r\n" + b"garbage\r\n\r\n", [b"200", b"400"]),
            (LIST + b"\r\n" + b"garbage\r\n\r\n" + b"x" * 500_000, [b"200", b"400"]),
            (LIST + b"\r\n" + LARGE, [b"200", b"431"]),
            ((LIST + b"\r\n") * 2 + b"garbage\r\n\r\n", [b"200", b"200", b"400"]),
            (CHUNKED + b"no length\r\n", [b"405"]),
            (LIST + b"\r\n" + CHUNKED + b"no length\r\n", [b"200", b"405"]),
        ],
        ids=range(6),
    )
    def test_an_error_follows_the_responses_before_it(
        self, requests: bytes, expected: list[bytes], caplog: pytest.LogCaptureFixture
    ):
        slow = Slow()
        with served(slow, Server(slow)) as service, closing(Client(service.port)) as client:
            client.socket.sendall(requests)
            assert slow.answering.wait(DEADLINE_SECONDS)
            eventually(lambda: "Invalid HTTP request received" in caplog.text)
            slow.resume.set()
            assert statuses(all_of(client.socket)) == expected

    def test_a_client_that_continues_to_send_after_a_rejected_request_gets_both_responses(self):
        slow = Slow()
        received = b""
        with served(slow, Server(slow)) as service, closing(Client(service.port)) as client:
            client.socket.sendall(LIST + b"\r\n" + b"garbage\r\n\r\n")
            assert slow.answering.wait(DEADLINE_SECONDS)
            sending = in_thread(lambda: raised_in_thread(lambda: client.socket.sendall(b"x" * 4_000_000)))
            slow.resume.set()
            while b"HTTP/1.1 400" not in received:
                received += client.socket.recv(65_536)
            sending.join(DEADLINE_SECONDS)
        assert received.startswith(b"HTTP/1.1 200")

    def test_a_request_that_has_a_response_gets_no_error(self, client: Client):
        assert client.send(self.CHUNKED).status == 405
        client.socket.sendall(b"no length\r\n")
        assert all_of(client.socket) == b""


class TestNumber:
    def test_connections_above_the_limit_are_503_while_others_wait_for_a_response(
        self, caplog: pytest.LogCaptureFixture
    ):
        slow = Slow()
        with served(slow, Server(slow, limits=ClientLimits(connections=1))) as service, ExitStack() as stack:
            first = stack.enter_context(closing(Client(service.port)))
            first.socket.sendall(LIST + b"\r\n")
            assert slow.answering.wait(DEADLINE_SECONDS)
            second = stack.enter_context(closing(Client(service.port)))
            answer = second.send(b"")
            assert (answer.status, answer.json) == (503, {"error": "Too many connections"})
            assert is_closed(second.socket)
            assert "connection rejected: 1 are open, which is the limit" in caplog.text
            slow.resume.set()
            assert first.send(b"").status == 200

    def test_the_connection_that_waited_longest_is_closed_for_a_new_one(self, caplog: pytest.LogCaptureFixture):
        with limited(connections=2, head_seconds=600, keep_alive_seconds=600) as service, ExitStack() as stack:
            silent, used, third = (stack.enter_context(closing(Client(service.port))) for _ in range(3))
            assert used.request("/trading-view/pair-list").status == 200
            assert third.request("/trading-view/pair-list").status == 200
            assert is_closed(silent.socket)
            assert "idle connection closed: 2 are open, which is the limit" in caplog.text
            assert used.request("/trading-view/pair-list").status == 200
            # Now the third has been idle for longer.
            fourth = stack.enter_context(closing(Client(service.port)))
            assert fourth.request("/trading-view/pair-list").status == 200
            assert is_closed(third.socket)
            assert used.request("/trading-view/pair-list").status == 200

    @pytest.mark.parametrize("loop", ["auto", "asyncio"])
    @pytest.mark.parametrize("requests", [[b""], [b"Connection: close\r\n"], [b"", b""], [b"", b"", b""]])
    def test_a_client_that_does_not_read_is_closed_for_a_new_one(
        self, requests: list[bytes], loop: Literal["auto", "asyncio"], caplog: pytest.LogCaptureFixture
    ):
        live, request = deep_book()
        app = create_app(live)
        server = Server(app, limits=ClientLimits(connections=1))
        server.config.loop = loop
        with served(app, server) as service, ExitStack() as stack:
            unread = stack.enter_context(closing(Client(service.port)))
            unread.socket.sendall(b"".join(request + fields + b"\r\n" for fields in requests))
            assert unread.socket.recv(1) == b"H"

            def is_answered() -> bool:
                with closing(Client(service.port)) as other:
                    return other.request("/trading-view/pair-list").status == 200

            eventually(is_answered)
            eventually(lambda: not server.server_state.connections)
            eventually(lambda: not server.server_state.tasks)
            assert not server._waiting
            assert "Exception" not in caplog.text

    def test_a_client_that_reads_late_gets_all_responses(self):
        server = Server(in_one_message)
        with served(in_one_message, server) as service, closing(Client(service.port)) as client:
            client.socket.sendall(DEEP + b"\r\n")
            assert client.socket.recv(1, socket.MSG_PEEK) == b"H"
            eventually(lambda: not server.server_state.tasks)
            client.socket.sendall(DEEP + b"Connection: close\r\n\r\n")
            eventually(lambda: server.server_state.tasks)
            assert len(server._waiting) == 1
            assert statuses(all_of(client.socket)) == [b"200", b"200"]

    def test_the_limit_reserves_file_descriptors_for_feeds(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("os.sysconf", {"SC_OPEN_MAX": 1024}.__getitem__)
        assert connections_allowed() == ClientLimits().connections == 1024 - RESERVED_DESCRIPTORS
        monkeypatch.setattr("os.sysconf", {"SC_OPEN_MAX": 10}.__getitem__)
        assert connections_allowed() == 1
        monkeypatch.setattr("os.sysconf", {"SC_OPEN_MAX": -1}.__getitem__)
        assert connections_allowed() > 1_000_000
        monkeypatch.delattr("os.sysconf")
        assert connections_allowed() == 1024 - RESERVED_DESCRIPTORS


REQUESTS = {
    "book": BOOK,
    "unchanged book": BOOK + b'If-None-Match: "%b"\r\n',
    "book in gzip": BOOK + b"Accept-Encoding: gzip\r\n",
    "list": LIST,
    "head of the list": b"HEAD" + LIST.removeprefix(b"GET"),
    "unknown": b"GET /nothing HTTP/1.1\r\nHost: test\r\n",
    "with a body": LIST + b"Content-Length: 3\r\n",
    "of HTTP 1.0": LIST.replace(b"/1.1", b"/1.0"),
    "the last one": LIST + b"Connection: close\r\n",
}


@pytest.fixture(scope="module")
def services() -> Iterator[tuple[Service, Service]]:
    """The same app, with and without its cached responses."""
    app = create_app(LiveIndex([OrderBook.from_levels(pair(1), bids=[("1", 2), ("2", 3)], spot="1")]))

    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    with served(app) as one, served(called) as other:
        yield one, other


class Closable(Transport):
    """Records what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_closed


class TestCachedResponses:
    """Responses that are sent without a call of the app."""

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], phases=WITHOUT_SHRINKING, deadline=None)
    @given(data=st.data())
    def test_they_are_those_of_the_app_in_the_same_order(self, services: tuple[Service, Service], data: st.DataObject):
        names = data.draw(st.lists(st.sampled_from([*REQUESTS][:-2]), max_size=12))
        names.append(data.draw(st.sampled_from([*REQUESTS][-2:])))
        text = b"".join(REQUESTS[name] + b"\r\n" + (b"abc" if name == "with a body" else b"") for name in names)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        sent = [self.exchanged(service, text, cuts) for service in services]
        assert statuses(sent[0]) == statuses(sent[1])
        assert re.sub(rb"date: [^\r]*", b"", sent[0]) == re.sub(rb"date: [^\r]*", b"", sent[1])
        assert len(statuses(sent[0])) == len(names)

    def exchanged(self, service: Service, text: bytes, cuts: list[int]) -> bytes:
        with closing(Client(service.port)) as client:
            for start, end in pairwise([0, *cuts, len(text)]):
                client.socket.sendall(text[start:end])
            return all_of(client.socket)

    def test_the_app_is_not_called_for_them(self):
        app = create_app(LiveIndex())
        called: list[str] = []

        class Recorded:
            cached_response = app.cached_response

            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                called.append(scope["path"])
                await app(scope, receive, send)

        with served(Recorded()) as service:
            assert service.pair_list().status == 200
            assert service.request("/nothing").status == 404
        assert called == ["/nothing"]

    def test_a_client_that_does_not_read_holds_no_more_than_the_buffers_of_its_connection(self):
        """Further responses wait until it reads."""
        book = OrderBook.from_levels(pair(1), bids=[(str(price), 2**60) for price in range(1, 400)])
        app = create_app(LiveIndex([book]))
        server = Server(app)
        with served(app, server) as service, closing(Client(service.port)) as client:
            client.send(BOOK + b"\r\n")  # it is cached from here on
            client.socket.sendall((BOOK + b"\r\n") * 1_000)
            eventually(lambda: server.server_state.connections)
            connection: Any = next(iter(server.server_state.connections))
            eventually(lambda: connection.flow.write_paused)
            assert connection.transport.get_write_buffer_size() < 4 * len(wire.order_book_to_json(book))
            client.socket.sendall(LIST + b"Connection: close\r\n\r\n")
            assert len(statuses(all_of(client.socket))) == 1_001

    def test_many_requests_may_follow_one_that_takes_long(self):
        slow = Slow()

        class Mixed:
            def __init__(self) -> None:
                self.app = create_app(LiveIndex())
                self.deepest = 0

            def cached_response(self, scope: Scope) -> tuple[Message, Message] | None:
                self.deepest = max(self.deepest, sum(1 for _ in walk_stack(None)))
                return self.app.cached_response(scope)

            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                await slow(scope, receive, send)

        app = Mixed()
        with served(app) as service, closing(Client(service.port)) as client:
            client.socket.sendall(
                b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n" + b"GET /trading-view/pair-list HTTP/1.1\r\n\r\n" * 1_000
            )
            assert slow.answering.wait(DEADLINE_SECONDS)
            slow.resume.set()
            client.socket.sendall(LIST + b"Connection: close\r\n\r\n")
            assert statuses(all_of(client.socket)) == [b"404"] + [b"200"] * 1_001
        assert app.deepest < 100, "a response must not call the next one"

    @pytest.mark.parametrize("is_closed", [False, True])
    def test_they_are_not_written_to_a_connection_that_was_closed_meanwhile(self, is_closed: bool):
        async def written() -> bytes:
            server = Server(create_app(LiveIndex()))
            server.config.load()
            state: Any = {"config": server.config, "server_state": server.server_state, "app_state": {}}
            connection: Any = server.config.http_protocol_class(**state)
            connection.connection_made(transport := Closable())
            connection.data_received(LIST + b"\r\n")
            transport.is_closed = is_closed
            await asyncio.sleep(0)
            return b"".join(transport.written)

        assert statuses(asyncio.run(written())) == ([] if is_closed else [b"200"])

    def test_at_the_shutdown_they_close_their_connection(self):
        app = create_app(LiveIndex())
        server = Server(app, drain_seconds=DEADLINE_SECONDS)
        with served(app, server) as service, closing(Client(service.port)) as client:
            assert client.request("/trading-view/pair-list").status == 200
            server.should_exit = True
            eventually(lambda: not server.servers[0].is_serving())
            assert client.request("/trading-view/pair-list").headers["connection"] == "close"
            assert is_closed(client.socket)


def test_requests_are_answered_during_the_work_of_each_second():
    working, resume = Event(), Event()
    resumed: list[bool] = []

    def work(connections: int) -> None:
        working.set()
        resumed.append(resume.wait(DEADLINE_SECONDS))

    app = create_app(LiveIndex())
    with served(app, Server(app, on_second=work)) as service, ExitStack() as stack:
        stack.callback(resume.set)
        assert working.wait(DEADLINE_SECONDS)
        assert service.pair_list().headers["x-content-type-options"] == "nosniff"
    assert False not in resumed


class InParts:
    """An app that responds in parts, and sends each once `resume` is released."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts
        self.sent, self.resume = Semaphore(0), Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % sum(map(len, self.parts)))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in self.parts:
            self.sent.release()
            await to_thread.run_sync(self.resume.acquire)
            await send({"type": "http.response.body", "body": part, "more_body": True})
        self.sent.release()
        await to_thread.run_sync(self.resume.acquire)
        await send({"type": "http.response.body"})


class TestHeads:
    def test_a_head_is_written_together_with_the_first_part_of_its_body(self):
        app = InParts(b"one", b"two")
        with served(app) as service, closing(Client(service.port)) as client, ExitStack() as stack:
            stack.callback(app.resume.release, 3)
            client.socket.sendall(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
            assert app.sent.acquire(timeout=DEADLINE_SECONDS)
            # What a server on the same machine has written can be read.
            assert select.select([client.socket], [], [], 0) == ([], [], [])
            app.resume.release()
            received = client.socket.recv(65_536)
            assert received.startswith(b"HTTP/1.1 200 OK\r\n")
            assert received.endswith(b"\r\n\r\none")
            app.resume.release(2)
            assert client.socket.recv(65_536) == b"two"

    def test_a_large_part_is_not_copied(self):
        joined = JoinedWrites(transport := Closable())
        part = bytes(MAX_JOINED_BYTES + 1)
        for data in (b"head", part, part):
            joined.write(data)
        assert transport.written == [b"head", part, part]
        assert transport.written[1] is transport.written[2] is part

    def test_a_request_that_waits_for_100_gets_it_before_its_response(self):
        async def reading(scope: Scope, receive: Receive, send: Send) -> None:
            body = (await receive())["body"]
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
            await send({"type": "http.response.body", "body": body})

        with served(reading) as service, closing(Client(service.port)) as client:
            client.socket.sendall(
                b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n"
                b"Connection: close\r\n\r\n"
            )
            assert client.socket.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.socket.sendall(b"abc")
            assert all_of(client.socket).endswith(b"\r\n\r\nabc")

    def test_a_response_without_its_body_is_not_sent(self):
        async def without_body(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})

        with served(without_body) as service, closing(Client(service.port)) as client:
            client.socket.sendall(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
            assert all_of(client.socket) == b""


class TestUvicorn:
    """What `LimitedConnection` uses of uvicorn."""

    CONNECTION = (
        *("connections", "cycle", "flow", "headers", "logger", "loop", "pipeline", "scope", "server_state"),
        *("transport", "url", "on_body", "on_headers_complete", "on_message_begin", "on_response_complete"),
        *("_start_asgi_task", "send_400_response"),
    )

    def test_uvicorn_has_each_attribute_that_is_used(self):
        slow = Slow()
        # uvicorn's own protocol: `LimitedConnection` sets some of the attributes itself.
        server = uvicorn.Server(uvicorn.Config(slow, http="httptools", ws="none", lifespan="off", log_config=None))
        with served(slow, server) as service, closing(Client(service.port)) as client, ExitStack() as stack:
            stack.callback(slow.resume.set)
            client.socket.sendall((LIST + b"\r\n") * 2)
            assert slow.answering.wait(DEADLINE_SECONDS)
            (connection,) = server.server_state.connections
            assert isinstance(connection, HttpToolsProtocol)
            require(connection, *self.CONNECTION)
            require(connection.flow, "resume_reading", "write_paused")
            require(connection.server_state, "default_headers")
            require(connection.cycle, "default_headers", "disconnected", "keep_alive", "scope")
            require(connection.cycle, "response_started", "response_complete", "transport", "waiting_for_100_continue")
            # The request that was not started; `cycle` is that of the last request.
            assert [cycle for cycle, _ in connection.pipeline] == [connection.cycle]


def require(owner: object, *names: str) -> None:
    missing = [name for name in names if not hasattr(owner, name)]
    assert not missing, f"uvicorn {uvicorn.__version__}: {type(owner).__name__} has no {', '.join(missing)}"


@pytest.mark.parametrize("target", ["/trading-view/pair-list", "/nothing", "/" + "x" * 10_000])
def test_responses_forbid_type_sniffing_and_embedding_in_other_origins(client: Client, target: str):
    headers = client.request(target).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"


def test_origins_that_may_read_responses_may_embed_them(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--cors-origin", "*") as command:
        headers = command.service.pair_list().headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "cross-origin-resource-policy" not in headers
