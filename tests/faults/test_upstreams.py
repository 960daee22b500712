"""A reader of hostile upstreams, in its own process: it can be ended, and reports rejected books."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from starlette.responses import Response

from market_index import LiveIndex
from market_index_http import create_app
from tests.command import running
from tests.faults import upstreams
from tests.feeds.made_up import book
from tests.service import served
from tests.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("answer", [upstreams.continues, upstreams.drips_head, upstreams.lists_and_stalls])
def test_a_signal_ends_a_reader_of_a_slow_service(answer: upstreams.Answer):
    requested = Event()
    with upstreams.upstream(answer, requested) as url, upstreams.reader(url) as process:
        assert requested.wait(DEADLINE_SECONDS)
        process.send_signal(signal.SIGTERM)
        assert "cannot be read" not in process.communicate(timeout=DEADLINE_SECONDS)[1], (
            "only the signal may end the reader"
        )


def test_retained_books_are_reported_while_all_books_are_rejected(tmp_path: Path):
    """The upstream is reachable and responds quickly, but no response contains a valid book."""
    upstream = create_app(LiveIndex([book(number, number) for number in (1, 2, 3)]))
    is_spoiled = Event()

    async def spoiling(scope: Any, receive: Any, send: Any) -> None:
        app = Response(b"{}") if is_spoiled.is_set() and scope["path"].endswith("order-book") else upstream
        await app(scope, receive, send)

    with served(spoiling) as one, running(tmp_path, f"http://127.0.0.1:{one.port}", "--port", 0) as command:

        def health() -> Any:
            return command.service.request("/healthz").json

        assert health()["current_rejections"] == 0
        is_spoiled.set()
        eventually(lambda: health()["current_rejections"] == 3)
        assert health()["problem"] is None
        assert len(command.service.pair_list().json["pairs"]) == 3
        is_spoiled.clear()
        eventually(lambda: health()["current_rejections"] == 0)


def test_a_signal_ends_a_reader_while_it_connects():
    with upstreams.unconnectable() as url, upstreams.reader(url) as process:
        process.send_signal(signal.SIGTERM)
        assert "cannot be read" not in process.communicate(timeout=DEADLINE_SECONDS)[1], (
            "only the signal may end the reader"
        )


def test_a_signal_ends_a_reader_while_it_looks_up_the_host():
    never = """
import socket, threading
def look_up(*_, **__):
    print("looking up", flush=True)
    threading.Event().wait()
socket.getaddrinfo = look_up
"""
    with upstreams.reader("http://service.example", never) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "looking up\n"
        process.send_signal(signal.SIGTERM)
        try:
            assert "cannot be read" not in process.communicate(timeout=DEADLINE_SECONDS)[1], (
                "only the signal may end the reader"
            )
        finally:
            process.kill()
