"""A real uvicorn on a real socket, and a client that sends arbitrary bytes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import uvicorn
from attrs import frozen
from starlette.applications import Starlette

from market_index.contract import Request, Response, Result, check
from market_index_cli.server.http_server import Server
from market_index_http import find_response
from tests.apps import Composed
from tests.waiting import DEADLINE_SECONDS, eventually


@frozen
class HttpResponse:
    """An HTTP response with its whole body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A client with one keep-alive connection, to a port of this machine or to the path of a Unix socket."""

    host = "test"

    def __init__(self, address: int | Path) -> None:
        self._address = address
        self._connect(address)

    def reopen(self) -> None:
        """Connect again, after a response that closes the connection."""
        self.close()
        self._connect(self._address)

    def _connect(self, address: int | Path) -> None:
        if isinstance(address, int):
            self.socket = socket.create_connection(("127.0.0.1", address), timeout=DEADLINE_SECONDS)
            return
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE_SECONDS)
        try:
            self.socket.connect(str(address))
        except OSError:
            self.socket.close()
            raise

    def request(self, target: str | bytes, method: str = "GET", headers: str = "") -> HttpResponse:
        """Send a request for `target`, which is not encoded, and return the response."""
        target = target if isinstance(target, bytes) else target.encode()
        line = b"%s %s HTTP/1.1\r\n" % (method.encode(), target)
        head = b"%bHost: %b\r\n%b\r\n" % (line, self.host.encode(), headers.encode())
        return self.send(head, method)

    def send(self, request: bytes, method: str = "GET") -> HttpResponse:
        """Send exactly these bytes, and return the response."""
        self.socket.sendall(request)
        response = HTTPResponse(self.socket, method=method)
        response.begin()
        answer = HttpResponse(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        response.close()
        return answer

    def close(self) -> None:
        self.socket.close()


def sending(client: Client, prefix: str = "") -> Callable[[Request], Response]:
    """Return what `market_index.contract.check` sends its requests with."""

    def send(request: Request) -> Response:
        headers = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        found = client.request(prefix + request.target, request.method, headers)
        if found.headers.get("connection") == "close":
            client.reopen()
        return Response(found.status, found.headers, found.body)

    return send


def broken_rules(client: Client, prefix: str = "") -> list[Result]:
    """Return what a check finds in a service, decisions and hints included."""
    report = check(sending(client, prefix))
    assert report.stopped is None
    return [one for one in report.results if one.failed]


@frozen
class Service:
    """The address of a running server."""

    port: int

    def request(self, target: str | bytes, method: str = "GET") -> HttpResponse:
        """Send a request on a new connection, and return the response."""
        client = Client(self.port)
        try:
            return client.request(target, method)
        finally:
            client.close()

    def order_book(self, base: str, quote: str, prefix: str = "") -> HttpResponse:
        return self.request(f"{prefix}/trading-view/order-book?{urlencode({'base': base, 'quote': quote})}")

    def pair_list(self, prefix: str = "") -> HttpResponse:
        return self.request(f"{prefix}/trading-view/pair-list")


def server_of(app: Any) -> Server:
    """Return the server of the command for an app."""
    if isinstance(app, Composed):
        respond = partial(find_response, app.adapter)
        return Server(app.adapter, respond=respond, responses=app.responses, on_shutdown=app.end_streams)
    return Server(app, respond=partial(find_response, app) if isinstance(app, Starlette) else None)


class Restartable:
    """A server on a free local port, which can be stopped, and started again at the same address.

    It is that of the command, unless another one is given, which can be started once.
    """

    def __init__(self, app: Any, server: uvicorn.Server | None = None) -> None:
        self._app = app
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.start(server)

    def start(self, server: uvicorn.Server | None = None) -> None:
        if self._socket.fileno() < 0:
            self._socket = socket.create_server(("127.0.0.1", self.port))
        server = server or server_of(self._app)
        thread = Thread(target=server.run, args=([self._socket],), daemon=True)
        self._server, self._thread = server, thread
        thread.start()

        def has_started() -> bool:
            assert server.started or thread.is_alive(), "uvicorn did not start"
            return server.started

        eventually(has_started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(DEADLINE_SECONDS)
        self._socket.close()
        assert not self._thread.is_alive(), "uvicorn did not end"


@contextmanager
def served(app: Any, server: uvicorn.Server | None = None) -> Iterator[Service]:
    """Serve the app on a free local port, with the given server or that of the command."""
    running = Restartable(app, server)
    try:
        yield Service(running.port)
    finally:
        running.stop()
