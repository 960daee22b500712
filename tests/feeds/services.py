"""Services for feeds: a real uvicorn, and an app in front of it that changes its responses."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import uvicorn

from market_index import AssetId, LiveIndex, Pair
from tests import links
from tests.apps import composed
from tests.waiting import DEADLINE_SECONDS, eventually

App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
Answer: TypeAlias = tuple[int, dict[str, str], bytes]
"""A status, headers and a body."""


HOLD: Final = b": the stream stays open\n\n"


class Front:
    """An app that serves a live index, or the answers that are set in advance.

    `answers` maps a pair, or None for the pair list, to an answer, or to a function that is called before the usual
    response is sent, and may return an answer. `everything` replaces all responses, and `stream` those of the stream.
    `scripts` are the pieces of the next streams, which stay open if their last piece is `HOLD`. `rewrite` changes the
    events of other streams. `requests` has the pair and the headers of each request of an endpoint, and `streams` the
    headers of each request of the stream.
    """

    def __init__(self, live: LiveIndex, *, has_stream: bool = False) -> None:
        self._app = composed(live, stream=has_stream)
        self.answers: dict[Pair | None, Answer | Callable[[], Answer | None]] = {}
        self.everything: Answer | None = None
        self.stream: Answer | None = None
        self.scripts: list[list[bytes]] = []
        self.rewrite: Callable[[bytes], bytes] = bytes
        self.requests: list[tuple[Pair | None, dict[str, str]]] = []
        self.streams: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        is_stream = scope["path"] == "/stream"
        if is_stream:
            self.streams.append(headers)
            found = self.everything or self.stream
        else:
            query = parse_qs(scope["query_string"].decode())
            pair = Pair(*(AssetId.parse(query[name][0]) for name in ("base", "quote"))) if query else None
            self.requests.append((pair, headers))
            prepared = self.everything or self.answers.get(pair)
            found = prepared() if callable(prepared) else prepared

        async def rewritten(message: Any) -> None:
            if is_stream and message["type"] == "http.response.body":
                # The app sends whole events.
                events = message.get("body", b"").split(b"\n\n")
                message = message | {"body": b"\n\n".join(map(self.rewrite, events))}
            await send(message)

        if found is None and is_stream and self.scripts:
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            for piece in self.scripts.pop(0):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if piece is HOLD:
                    while (await receive())["type"] != "http.disconnect":
                        pass
            await send({"type": "http.response.body", "body": b""})
            return
        if found is None:
            await self._app(scope, receive, rewritten)
            return
        status, headers, body = found
        coded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": coded})
        await send({"type": "http.response.body", "body": body})

    def end_streams(self) -> None:
        """End all streams."""
        getattr(self._app, "end_streams", lambda: None)()


@contextmanager
def served(app: App, certificate: Path | None = None) -> Iterator[str]:
    """Serve an app on a free port of this machine, with TLS if there is a certificate. Yield its base URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            ssl_certfile=certificate,
        )
    )
    thread = Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started)
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        getattr(app, "end_streams", lambda: None)()
        thread.join(DEADLINE_SECONDS)
        listener.close()


@contextmanager
def sending(respond: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept connections, and call a function for each one, in a thread. Yield the base URL."""

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client has closed it
            connection.settimeout(DEADLINE_SECONDS)
            connection.recv(65536)
            respond(connection)

    with links.accepting(lambda one: Thread(target=answer, args=(one,), daemon=True).start()) as port:
        yield f"http://127.0.0.1:{port}"
