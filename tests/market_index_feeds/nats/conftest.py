"""What the tests of the medium NATS have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index_feeds import Feed, Store, open_store
from market_index_feeds.nats import open_nats_source
from market_index_feeds.nats.connection import Connection
from market_index_feeds.nats.retry import Patience
from market_index_feeds.nats.watch import Watch
from market_index_feeds.nats.writes import InFlight
from tests import nats

SHORT = Patience(connect=0.3, answer=0.3)


def impatient_feed(url: str) -> Feed:
    """A feed that gives up soon if no server answers."""
    return Feed(open_nats_source(url, SHORT))


def name_of(bucket: str) -> str:
    """The name of the bucket of a URL."""
    return bucket.rpartition("/")[2]


@pytest.fixture
def store(bucket: str) -> Iterator[Store]:
    with open_store(bucket) as store:
        yield store


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> list[Watch]:
    """Every watch that is opened."""
    opened: list[Watch] = []
    open_watch = Watch.open

    async def noting(connection: Connection, *, headers_only: bool = False) -> Watch:
        opened.append(await open_watch(connection, headers_only=headers_only))
        return opened[-1]

    monkeypatch.setattr(Watch, "open", noting)
    return opened


@pytest.fixture
def in_flight(monkeypatch: pytest.MonkeyPatch) -> list[InFlight]:
    """The writes of each attempt that a store makes."""
    attempts: list[InFlight] = []
    initialize = InFlight.__init__

    def noting(self: InFlight, connection: Connection, seconds: float) -> None:
        initialize(self, connection, seconds)
        attempts.append(self)

    monkeypatch.setattr(InFlight, "__init__", noting)
    return attempts


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[nats.Server]:
    """A server of one test, which may do anything to it."""
    with nats.served(tmp_path / "own", "max_payload: 65536") as server:
        yield server
