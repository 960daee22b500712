"""A transport and an event loop without sockets and time, connections on them, and an app that waits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Any
from unittest.mock import Mock

from anyio import to_thread
from starlette.types import Receive, Scope, Send

from market_index import LiveIndex
from market_index_cli.server.http_server import Server
from market_index_http import create_app
from tests.service import Service, served
from tests.waiting import DEADLINE_SECONDS

LIST = b"GET /trading-view/pair-list HTTP/1.1\r\nHost: test\r\n"
"""The begin of a request that has a cached response."""

OTHER = b"GET /nothing HTTP/1.1\r\nHost: test\r\n\r\n"
"""A request that has none."""


class Transport(asyncio.Transport):
    """Records what is written, and reports the end of the connection once the test calls `lose`."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False
        self.unsent = 0

    @property
    def sent(self) -> bytes:
        return b"".join(self.written)

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Loop:
    """An event loop at a fixed time. It calls what is ready when the test calls `run`, and starts no task."""

    def __init__(self) -> None:
        self.now = 100.0
        self.tasks = 0
        self._ready: list[tuple[Callable[..., object], Any]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> None:
        self._ready.append((call, arguments))

    def call_later(self, *_: Any) -> Mock:
        return Mock()

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **_: Any) -> Mock:
        coroutine.close()
        self.tasks += 1
        return Mock()

    def run(self) -> None:
        while self._ready:
            call, arguments = self._ready.pop(0)
            call(*arguments)


def connected(server: Server, loop: Loop) -> Any:
    """Return a connection of the server, with a `Transport`."""
    server.clients.clock = loop.time
    if not server.config.loaded:
        server.config.load()
    made: Any = server.config.http_protocol_class(  # type: ignore[call-arg]  # as in uvicorn
        config=server.config, server_state=server.server_state, app_state={}, _loop=loop
    )
    made.connection_made(Transport())
    return made


class Slow:
    """An app that responds with 404 once `resume` is set."""

    def __init__(self) -> None:
        self.answering, self.resume = Event(), Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.answering.set()
        await to_thread.run_sync(self.resume.wait, DEADLINE_SECONDS)
        await create_app(LiveIndex())(scope, receive, send)


@contextmanager
def slow(max_connections: int = 100) -> Iterator[tuple[Slow, Service, Server]]:
    app = Slow()
    server = Server(app)
    server.clients.max_connections = max_connections
    with served(app, server) as service, ExitStack() as stack:
        stack.callback(app.resume.set)
        yield app, service, server


def all_of(connection: socket.socket) -> bytes:
    """Return what the server sends until it closes the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))
