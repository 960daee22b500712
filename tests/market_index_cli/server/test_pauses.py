"""Garbage collections and thread switches of a process that serves, and the garbage that connections leave."""

from __future__ import annotations

import gc
import socket
import struct
import sys
from asyncio import Transport
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final
from weakref import ref

import pytest

from market_index import LiveIndex
from market_index_cli.server.connection import LimitedConnection
from market_index_cli.server.pauses import short_pauses
from market_index_http import create_app
from tests.market_index_cli.server.test_connection import Slow
from tests.service import Client, served
from tests.waiting import DEADLINE_SECONDS, eventually

HEAD: Final = b"GET /trading-view/pair-list HTTP/1.1\r\nHost: test\r\n"
REQUEST: Final = HEAD + b"\r\n"
WAYS: Final[Mapping[str, bytes]] = {
    "without a request": b"",
    "in a head": HEAD,
    "before a response": REQUEST,
    "before several responses": REQUEST * 5,
    "after a response": REQUEST,
    "after a last response": HEAD + b"Connection: close\r\n\r\n",
    "after an error": b"GET /none HTTP/1.1\r\nHost: test\r\n\r\n",
    "after a malformed request": b"\0\r\n\r\n",
    "in a body": HEAD.replace(b"GET", b"POST") + b"Content-Length: 9\r\n\r\n1",
}


class Node:
    """Refers to itself, so that only a garbage collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def generations() -> Iterator[list[int]]:
    """Yield the generation of each garbage collection from now on."""
    collected: list[int] = []

    def on_collection(phase: str, collection: Mapping[str, int]) -> None:
        if phase == "start":
            collected.append(collection["generation"])

    gc.callbacks.append(on_collection)
    yield collected
    gc.callbacks.remove(on_collection)
    gc.unfreeze()


def test_many_objects_that_are_retained_are_never_inspected_together(generations: list[int]):
    with short_pauses("market.db"):
        retained: list[list[int]] = [[] for _ in range(500_000)]
    assert len(retained) == 500_000
    assert {*generations} == {1}


@pytest.mark.usefixtures("generations")
def test_young_garbage_cycles_are_freed():
    with short_pauses("market.db"):
        gc.collect()  # the next collection must not find the cycle in use: each object is inspected once
        freed = ref(Node())
        retained: list[list[int]] = [[] for _ in range(5_000)]
    assert len(retained) == 5_000
    assert freed() is None


def test_the_exit_of_the_interpreter_inspects_nothing_of_the_feed(generations: list[int]):
    before = gc.get_freeze_count()
    with short_pauses("market.db"):
        retained: list[list[int]] = [[] for _ in range(5_000)]
    assert gc.get_freeze_count() >= before + len(retained)
    assert 2 not in generations


def test_a_feed_with_a_url_keeps_the_collections_of_python():
    before = gc.get_threshold()
    with short_pauses("nats://127.0.0.1:4222/books"):
        assert gc.get_threshold() == before
        assert sys.getswitchinterval() == pytest.approx(0.0005)
    gc.unfreeze()


def test_the_settings_are_restored():
    before = gc.get_threshold(), sys.getswitchinterval()
    with short_pauses("market.db"):
        assert gc.get_threshold() != before[0]
        assert sys.getswitchinterval() < before[1]
    assert (gc.get_threshold(), sys.getswitchinterval()) == before
    gc.unfreeze()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ref[LimitedConnection]]]:
    """Yield a reference to each connection from now on, without garbage collections."""
    made: list[ref[LimitedConnection]] = []
    connection_made = LimitedConnection.connection_made

    def recorded(self: LimitedConnection, transport: Transport) -> None:
        made.append(ref(self))
        connection_made(self, transport)

    monkeypatch.setattr(LimitedConnection, "connection_made", recorded)
    gc.disable()
    yield made
    gc.enable()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("close", [socket.socket.close, reset])
@pytest.mark.parametrize("way", WAYS)
def test_no_connection_leaves_a_garbage_cycle(
    connections: list[ref[LimitedConnection]], way: str, close: Callable[[socket.socket], None]
):
    slow = Slow()
    with served(slow) as service:
        with closing(socket.create_connection(("127.0.0.1", service.port))) as client:
            client.sendall(WAYS[way])
            eventually(lambda: connections)
            if way.startswith("before"):
                assert slow.answering.wait(DEADLINE_SECONDS)
            else:
                slow.resume.set()
            close(client)
        slow.resume.set()
        eventually(lambda: connections[0]() is None)


@pytest.mark.parametrize("close", [socket.socket.close, reset])
def test_no_connection_with_cached_responses_leaves_a_garbage_cycle(
    connections: list[ref[LimitedConnection]], close: Callable[[socket.socket], None]
):
    with served(create_app(LiveIndex())) as service, closing(Client(service.port)) as client:
        for _ in range(3):
            assert client.request("/trading-view/pair-list").status == 200
        close(client.socket)
        eventually(lambda: connections[0]() is None)
