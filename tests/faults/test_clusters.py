"""Failures of servers in a cluster: no acknowledged change is lost, and all readers show the same books."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_feeds import open_feed
from tests import nats, nats_security
from tests.faults.replication import Replication
from tests.market_index_feeds.made_up import book, spots
from tests.market_index_feeds.nats.conftest import succeeds
from tests.waiting import eventually

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[nats.Server]]:
    """A cluster for all tests. Each test ends with all three servers running."""
    with nats.cluster(tmp_path_factory.mktemp("three")) as servers:
        yield servers


@pytest.fixture
def replication(servers: list[nats.Server], request: pytest.FixtureRequest) -> Iterator[Replication]:
    with Replication(servers, re.sub(r"\W", "_", request.node.name)).running() as replication:
        yield replication
    for server in servers:
        if server.process is None:
            server.start()
            server.wait()


@pytest.mark.parametrize("has_empty_disk", [False, True], ids=["with its disk", "with an empty disk"])
def test_a_killed_leader_loses_no_change(replication: Replication, has_empty_disk: bool):
    leader = replication.leader
    leader.kill()
    if has_empty_disk:
        leader.empty()
    replication.await_publishing()
    leader.start()
    leader.wait()
    replication.await_publishing()
    replication.check()


def test_without_a_majority_the_last_index_is_served_and_its_age_rises(replication: Replication):
    shown = len(replication.readers[0].live.current)
    killed = replication.servers[:2]
    for server in killed:
        server.kill()
    replication.await_failures()
    assert re.search("did not acknowledge|was not written to|cannot be opened", replication.publisher.failures[-1])
    for reader in replication.readers:
        assert len(reader.live.current) == shown
        eventually(lambda reader=reader: reader.feed.age > 2)  # type: ignore[misc]  # a default has no type
    for server in killed:
        server.start()
    replication.await_publishing()
    replication.check()


def test_a_leader_that_is_suspended_and_resumed_loses_no_change(replication: Replication):
    leader = replication.leader
    leader.stop()
    try:
        replication.await_publishing()
    finally:
        leader.send(signal.SIGCONT)
    replication.await_publishing()
    replication.check()


def test_readers_leave_a_suspended_server(replication: Replication):
    """Suspends each server in turn, because each reader is connected to one of them."""
    for server in replication.servers:
        server.stop()
        try:
            replication.await_publishing()
            replication.await_readers()
        finally:
            server.send(signal.SIGCONT)
    replication.check()


def test_reported_servers_are_verified_by_the_name_of_the_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Their certificates have the name `localhost`; the cluster reports IP addresses."""
    monkeypatch.setenv("NATS_CA", str(tmp_path / "ca.pem"))
    live = LiveIndex()
    with nats.cluster(tmp_path / "three", nats_security.certified(tmp_path)) as servers:
        first = servers[0]
        url = f"tls://localhost:{first.port}/books"
        with nats.opened(url) as store, open_feed(url) as feed:
            store.publish(book(1, 1))
            feed.start(live)
            first.kill()
            eventually(lambda: succeeds(lambda: store.publish(book(1, 2))))
            eventually(lambda: spots(live) == {1: "2"})
