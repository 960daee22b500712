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
from tests.service import served
from tests.waiting import DEADLINE_SECONDS, eventually

HEAD: Final = b"GET /trading-view/pair-list HTTP/1.1\r\nHost: test\r\n"
REQUEST: Final = HEAD + b"\r\n"
WAYS: Final[Mapping[str, bytes]] = {
    "without a request": b"",
    "in a head": HEAD,
    "after a response": REQUEST,
    "after a last response": HEAD + b"LimitedConnection: close\r\n\r\n",
    "after an error": b"GET /none HTTP/1.1\r\nHost: test\r\n\r\n",
    "after a malformed request": b"\0\r\n\r\n",
    "in a body": HEAD.replace(b"GET", b"POST") + b"Content-Length: 9\r\n\r\n1",
}


class Node:
    """Refers to itself, so that only a garbage collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def settings() -> Iterator[None]:
    """Set what a process that serves sets, and restore all of it."""
    with short_pauses("market.db"):
        yield
    gc.unfreeze()


def is_inspected(value: object) -> bool:
    """Whether collections inspect the value; `gc` lists no other ones."""
    return any(one is value for one in gc.get_objects())


@pytest.mark.usefixtures("settings")
def test_what_a_collection_inspected_without_effect_is_not_inspected_again():
    gc.collect()
    gc.collect()
    retained: list[list[int]] = []
    assert is_inspected(retained)
    gc.collect(0)
    assert not is_inspected(retained)


@pytest.mark.usefixtures("settings")
def test_after_a_collection_that_freed_something_only_one_of_all_generations_excludes():
    gc.collect()
    gc.collect()
    retained: list[list[int]] = []
    Node()
    for generation in (0, 0, 1):
        gc.collect(generation)
        assert is_inspected(retained)
    gc.collect()
    assert not is_inspected(retained)


@pytest.mark.usefixtures("settings")
def test_collections_of_all_generations_are_frequent():
    gc.collect()
    gc.freeze()
    gc.collect()
    retained: list[list[int]] = []
    Node()
    kept = [retained]
    while is_inspected(retained):
        kept.append([])
        assert len(kept) < 10_000


@pytest.mark.usefixtures("settings")
def test_what_is_not_inspected_any_more_is_freed_with_the_last_reference():
    retained = Node()
    gc.collect()
    gc.collect()
    assert not is_inspected(retained)
    freed = ref(retained)
    del retained.itself, retained
    assert freed() is None


@pytest.mark.usefixtures("settings")
def test_a_cycle_that_became_garbage_in_an_older_generation_is_freed():
    gc.collect()
    gc.collect()
    node = Node()
    freed = ref(node)
    Node()
    gc.collect(0)
    del node
    gc.collect(0)
    assert freed() is not None
    gc.collect()
    assert freed() is None


@pytest.mark.usefixtures("settings")
def test_a_collection_that_freed_something_excludes_nothing():
    gc.collect()
    retained = Node()
    Node()
    gc.collect()
    freed = ref(retained)
    del retained
    gc.collect()
    assert freed() is None


def test_a_feed_with_a_url_keeps_the_collections_of_python():
    before = list(gc.callbacks), gc.get_threshold()
    with short_pauses("nats://127.0.0.1:4222/books"):
        assert (gc.callbacks, gc.get_threshold()) == before
        assert sys.getswitchinterval() == pytest.approx(0.0005)


def test_the_settings_are_restored():
    before = list(gc.callbacks), gc.get_threshold(), sys.getswitchinterval()
    with short_pauses("market.db"):
        assert len(gc.callbacks) > len(before[0])
        assert sys.getswitchinterval() < before[2]
    assert (gc.callbacks, gc.get_threshold(), sys.getswitchinterval()) == before


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


def closed(client: socket.socket) -> None:
    client.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("close", [closed, reset])
@pytest.mark.parametrize("way", WAYS)
def test_no_connection_leaves_a_garbage_cycle(
    connections: list[ref[LimitedConnection]], way: str, close: Callable[[socket.socket], None]
):
    with served(create_app(LiveIndex())) as service:
        with closing(socket.create_connection(("127.0.0.1", service.port))) as client:
            client.sendall(WAYS[way])
            eventually(lambda: connections)
            close(client)
        eventually(lambda: connections[0]() is None)


@pytest.mark.parametrize("close", [closed, reset])
@pytest.mark.parametrize("requests", [1, 5])
def test_no_connection_leaves_a_garbage_cycle_if_it_is_closed_before_the_response(
    connections: list[ref[LimitedConnection]], requests: int, close: Callable[[socket.socket], None]
):
    slow = Slow()
    with served(slow) as service:
        with closing(socket.create_connection(("127.0.0.1", service.port))) as client:
            client.sendall(REQUEST * requests)
            assert slow.answering.wait(DEADLINE_SECONDS)
            close(client)
        slow.resume.set()
        eventually(lambda: connections[0]() is None)
