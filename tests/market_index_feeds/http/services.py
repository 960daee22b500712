"""Services with given responses, for tests of HTTP feeds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from market_index_feeds import Feed
from market_index_feeds.http.limits import PollingLimits
from market_index_feeds.http.source import open_http_source
from tests.waiting import DEADLINE_SECONDS


def polled(url: str, **limits: Any) -> Feed:
    """A feed that polls a service at short intervals, with these `PollingLimits`."""
    return Feed(open_http_source(url, PollingLimits(**{"poll_seconds": 0.01, **limits})))


def answering(answers: dict[str, Response]) -> Starlette:
    """An app with given responses by path."""

    async def answer(request: Request) -> Response:
        app.state.asked += 1
        return answers[request.url.path]

    app = Starlette(routes=[Route("/{path:path}", answer)])
    app.state.asked = 0
    return app


@contextmanager
def answering_in_bytes(*answers: bytes) -> Iterator[str]:
    """The base URL of a service that sends exactly these bytes, each on a connection of its own that it then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for one in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(one)

        answering = Thread(target=answer)
        answering.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        answering.join(DEADLINE_SECONDS)
        assert not answering.is_alive()


def says(log: pytest.LogCaptureFixture, text: str) -> bool:
    return text in log.text


LIST = "/trading-view/pair-list"
BOOK = "/trading-view/order-book"
