"""Hostile clients of the soak test, with attacks of tests/faults in random order."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException
from typing import Final

from tests.faults.hostile_clients import HEAD, MIB, half_open, sent_until_closed
from tests.market_index_feeds.made_up import pair
from tests.service import Client
from tests.soak.actors import Actor

CONNECTIONS: Final = 300
"""The connections of one attack: more than the open files of a server."""

UPPER_CASE: Final = f"/trading-view/order-book?base={str(pair(1).base).upper()}&quote=ADA"


class HostileClient(Actor):
    """A client with a random attack each time."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__()
        self._port = port
        self._random = random.Random(number)

    def act(self) -> None:
        attacks = (self._many_fields, self._one_field, self._half_open, self._upper_case, self._reads_nothing)
        # The server may close connections at any time: that is its defence.
        with suppress(OSError, HTTPException):
            self._random.choice(attacks)()

    def _many_fields(self) -> None:
        self._endless_head(b"X: %s\r\n" % (b"x" * 1000) * 64)

    def _one_field(self) -> None:
        self._endless_head(b"x" * 65536)

    def _endless_head(self, piece: bytes) -> None:
        with closing(Client(self._port)) as client:
            client.socket.sendall(HEAD)
            assert sent_until_closed(client, piece, 100 * MIB) < 100 * MIB, "the request head was not rejected"

    def _half_open(self) -> None:
        with ExitStack() as stack:
            half_open(self._port, CONNECTIONS, stack)
            self.over.wait(self._random.uniform(0, 3))

    def _upper_case(self) -> None:
        with closing(Client(self._port)) as client:
            for _ in range(300):
                client.request(UPPER_CASE)

    def _reads_nothing(self) -> None:
        with closing(Client(self._port)) as client:
            client.socket.settimeout(1)
            for _ in range(1000):
                client.socket.sendall((HEAD + b"\r\n") * 10)
