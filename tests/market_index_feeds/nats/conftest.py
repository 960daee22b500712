"""Fixtures for the tests of the medium NATS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, Store, StoreError, backoff, open_feed, open_store
from market_index_feeds.nats import open_nats_source
from market_index_feeds.nats.connection import BucketConnection, RetryTimeouts, Sent
from market_index_feeds.nats.publisher import Publisher
from market_index_feeds.nats.watch import Watch
from market_index_feeds.nats.writes import Outcome, Write
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


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set once opening a bucket has failed, and is retried."""
    failed = Event()

    def next_backoff(seconds: float) -> float:
        failed.set()
        return backoff.next_backoff(seconds)

    monkeypatch.setattr("market_index_feeds.nats.connection.next_backoff", next_backoff)
    return failed


@pytest.fixture
def store(bucket: str) -> Iterator[Store]:
    with open_store(bucket) as store:
        yield store


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> list[Watch]:
    """Every watch that is opened."""
    opened: list[Watch] = []
    open_watch = Watch.open

    async def noting(connection: BucketConnection) -> Watch:
        opened.append(await open_watch(connection))
        return opened[-1]

    monkeypatch.setattr(Watch, "open", noting)
    return opened


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Write]:
    """The writes that stores have sent."""
    sent: list[Write] = []
    send = Publisher._send

    async def noting(self: Publisher, connection: BucketConnection, write: Write) -> Sent:
        reply = await send(self, connection, write)
        sent.append(write)
        return reply

    monkeypatch.setattr(Publisher, "_send", noting)
    return sent


def is_in_flight(sent: list[Write]) -> bool:
    """Whether the last sent write has no reply."""
    return bool(sent) and sent[-1].outcome is Outcome.UNKNOWN


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
