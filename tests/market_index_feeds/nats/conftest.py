"""Fixtures for the tests of the medium NATS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, Store, StoreError, backoff, open_feed, open_store
from market_index_feeds.nats import open_nats_source, watch
from market_index_feeds.nats.connection import Connection
from market_index_feeds.nats.retry import RetryTimeouts
from market_index_feeds.nats.writes import InFlight
from tests import nats
from tests.market_index_feeds.made_up import book

SHORT = RetryTimeouts(connect=0.3, answer=0.3)


def feed_with_short_timeouts(url: str) -> Feed:
    """A feed with short timeouts for opening."""
    return Feed(open_nats_source(url, SHORT))


def succeeds(work: Callable[[], object]) -> bool:
    try:
        work()
    except StoreError:
        return False
    return True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(backoff, "LONGEST_SECONDS", 0.1)


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set once opening a bucket has failed, and is retried."""
    failed = Event()

    def next_backoff(seconds: float) -> float:
        failed.set()
        return backoff.next_backoff(seconds)

    monkeypatch.setattr("market_index_feeds.nats.retry.next_backoff", next_backoff)
    return failed


@pytest.fixture
def store(bucket: str) -> Iterator[Store]:
    with open_store(bucket) as store:
        yield store


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> list[watch.Watch]:
    """Every watch that is opened."""
    opened: list[watch.Watch] = []
    open_watch = watch.Watch.open

    async def noting(connection: Connection) -> watch.Watch:
        opened.append(await open_watch(connection))
        return opened[-1]

    monkeypatch.setattr(watch.Watch, "open", noting)
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
    """A server for one test, which may change or kill it."""
    with nats.served(tmp_path / "own", "max_payload: 65536") as server:
        yield server


@pytest.fixture
def own_store(own_server: nats.Server) -> Iterator[Store]:
    with open_store(own_server.bucket("books")) as store:
        yield store


@pytest.fixture
def own_feed(own_store: Store, live: LiveIndex) -> Iterator[Feed]:
    """A feed of two pairs on its own server, which is being followed."""
    own_store.publish(book(1, 1), book(2, 2))
    with open_feed(own_store.target) as feed:
        feed.start(live)
        yield feed
