"""A transport and an event loop without sockets and time, and connections on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import Mock

from market_index_cli.server.http_server import Server


class Transport(asyncio.Transport):
    """Records what is written, and reports the end of the connection once the test calls `lose`."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False

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

    def create_task(self, coroutine: Coroutine[Any, Any, Any]) -> Mock:
        coroutine.close()
        self.tasks += 1
        return Mock()

    def run(self) -> None:
        while self._ready:
            call, arguments = self._ready.pop(0)
            call(*arguments)


def connected(server: Server, loop: Loop) -> Any:
    """Return a connection of the server, with a `Transport`."""
    if not server.config.loaded:
        server.config.load()
    made: Any = server.config.http_protocol_class(  # type: ignore[call-arg]  # as in uvicorn
        config=server.config, server_state=server.server_state, app_state={}, _loop=loop
    )
    made.connection_made(Transport())
    return made
