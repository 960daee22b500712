"""The kinds of stores, each with a function that stores invalid content as another program could."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from attrs import frozen

from market_index import Pair
from tests import nats
from tests.market_index_feeds.sqlite.files import damage


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
        last = "(SELECT max(last) FROM runs)"
        change = f"UPDATE books SET revision = {last} + 1, body = ? WHERE pair = ?"
        damage(Path(self.target), change, str(text, "latin-1"), str(pair))


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
