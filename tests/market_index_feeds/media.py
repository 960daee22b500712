"""The kinds of stores, each with a function that stores invalid content as another program could."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Protocol

from attrs import frozen

from market_index import Pair
from tests import nats


class Medium(Protocol):
    """A store that does not exist yet. `kind` is the start of its class name."""

    @property
    def target(self) -> str: ...
    @property
    def kind(self) -> str: ...

    def spoil(self, pair: Pair, text: bytes) -> None:
        """Replace the stored value of the pair by `text`."""


@frozen
class File:
    """A file of SQLite."""

    target: str
    kind = "Sqlite"

    def spoil(self, pair: Pair, text: bytes) -> None:
        with closing(sqlite3.connect(self.target)) as connection, connection:
            (last,) = connection.execute("SELECT last FROM runs ORDER BY last DESC").fetchone()
            connection.execute(
                "UPDATE books SET revision = ?, body = ? WHERE pair = ?", (last + 1, str(text, "latin-1"), str(pair))
            )
            connection.execute("UPDATE runs SET last = ? WHERE last = ?", (last + 1, last))


@frozen
class Bucket:
    """A bucket of a server of NATS."""

    target: str
    server: nats.Server
    kind = "Nats"

    @property
    def name(self) -> str:
        return Path(self.target).name

    def spoil(self, pair: Pair, text: bytes) -> None:
        nats.put(self.server, self.name, str(pair).replace(":", "-").replace("/", "."), text)
