"""The feeds of the soak test: a store whose publishers are killed, a file that is replaced, and a hostile upstream."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Final

from market_index import MarketIndex, wire
from tests.faults.killed_publisher import KilledPublisher
from tests.faults.publisher import books
from tests.faults.upstreams import ATTACKS, answered
from tests.market_index_feeds.made_up import book
from tests.soak.actors import Actor

REPLACEMENTS: Final = ("pipe", "device", "folder", "nothing")
"""The kinds of files that sometimes replace the file of order books."""


class KilledPublishers(Actor):
    """Publish into a store as fast as possible, kill the publisher, and start the next one."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.publisher = KilledPublisher(path)
        self._random = random.Random(1)

    def act(self) -> None:
        self.publisher.run(self._random.uniform(0.1, 3), acknowledges=True)
        self.publisher.check()


class ReplacedFile(Actor):
    """Replace a file of order books with another one, and sometimes with a pipe, a device, a folder or nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.generation = 0
        self.path = path
        self._new = path.with_name("new")
        self._random = random.Random(2)

    def act(self) -> None:
        if self.generation and self._random.random() < 0.1:
            self._replace_with(self._random.choice(REPLACEMENTS))
            self.over.wait(self._random.uniform(0, 1))
        self.put(self.generation + 1)
        self.over.wait(self._random.uniform(0, 0.5))

    def put(self, generation: int) -> None:
        """Replace the file with one that has the books of this generation."""
        self._new.write_bytes(b"".join(wire.order_book_to_json(one) + b"\n" for one in books(generation)))
        if self.path.is_dir():
            self.path.rmdir()
        self._new.replace(self.path)
        self.generation = generation

    def _replace_with(self, kind: str) -> None:
        if kind == "pipe":
            os.mkfifo(self._new)
        elif kind == "device":
            self._new.symlink_to("/dev/zero")
        if kind in {"pipe", "device"}:
            self._new.replace(self.path)
            return
        self.path.unlink()
        if kind == "folder":
            self.path.mkdir()


class HostileUpstream(Actor):
    """A service that alternates between correct responses and attacks on its reader."""

    def __init__(self) -> None:
        super().__init__()
        self.generation = 1
        self._random = random.Random(3)
        self._attack: str | None = None
        self._attack_is_over = Event()

    def act(self) -> None:
        self._attack_is_over.clear()
        self._attack = self._random.choice(list(ATTACKS))
        self.over.wait(self._random.uniform(1, 10))
        self._attack = None
        self._attack_is_over.set()
        self.generation += 1
        self.over.wait(self._random.uniform(1, 5))

    def answer(self, connection: socket.socket, request: bytes, _: Event) -> None:
        """Respond to one request, or attack the connection."""
        attack = self._attack
        if attack is not None:
            with suppress(OSError):
                ATTACKS[attack](connection, request, self._attack_is_over)
            return
        listed = book(1, self.generation)
        body = wire.pair_list_to_json(MarketIndex([listed]).pair_list())
        connection.sendall(answered(body if b"pair-list" in request else wire.order_book_to_json(listed)))
