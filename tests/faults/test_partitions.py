"""Network partitions: no acknowledged change is lost, and no reader returns to an older book."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from market_index_feeds import Feed
from tests import nats
from tests.faults.namespaces import Node, Unavailable, network
from tests.faults.replication import Replication
from tests.market_index_feeds.made_up import spots
from tests.waiting import eventually

pytestmark = pytest.mark.thorough

SERVERS = ("n0", "n1", "n2")
STALE_SECONDS = 3


@pytest.fixture(scope="module")
def nodes() -> Iterator[dict[str, Node]]:
    """Nodes for each server, the publisher, a reader to be disconnected, and the rest of the test."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(network([*SERVERS, "publisher", "reader", "observer"]))
        except Unavailable as error:
            pytest.skip(str(error))
        yield made


def cluster_server(folder: Path, nodes: dict[str, Node], name: str) -> nats.Server:
    """Return a server of the cluster, which will run on its node."""
    routes = ", ".join(f'"nats://{nodes[other].address}:6222"' for other in SERVERS)
    listen = f"{nodes[name].address}:6222"
    routed = f'cluster {{ name: "cluster", listen: "{listen}", routes: [{routes}] }}'
    return nats.Server(folder, name, routed, host=nodes[name].address, prefix=nodes[name].prefix)


@pytest.fixture(scope="module")
def servers(nodes: dict[str, Node], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[nats.Server]]:
    """A cluster for all tests. Each test heals the network."""
    folder = tmp_path_factory.mktemp("three")
    servers = [cluster_server(folder, nodes, name) for name in SERVERS]
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.start()
        for server in servers:
            nodes["observer"].inside(server.wait)
        yield servers


@pytest.fixture
def replication(
    nodes: dict[str, Node], servers: list[nats.Server], request: pytest.FixtureRequest
) -> Iterator[Replication]:
    """The first reader is on the node `reader`."""
    with Replication(
        servers,
        re.sub(r"\W", "_", request.node.name),
        observer=nodes["observer"],
        publisher=nodes["publisher"],
        readers=[nodes["reader"], nodes["observer"]],
    ).running() as replication:
        yield replication


def is_stale(feed: Feed) -> bool:
    return feed.age > STALE_SECONDS


def test_a_leader_with_silent_packet_loss_loses_no_change(replication: Replication, nodes: dict[str, Node]):
    leader = replication.leader
    check_server_catches_up(replication, leader, nodes[leader.name].silent_loss())


def test_a_follower_with_a_closed_link_catches_up(replication: Replication, nodes: dict[str, Node]):
    follower = replication.follower
    check_server_catches_up(replication, follower, nodes[follower.name].closed_link())


def check_server_catches_up(replication: Replication, server: nats.Server, cut: AbstractContextManager[None]) -> None:
    with cut:
        replication.await_publishing()
        replication.await_readers()
    replication.await_current(server)
    replication.check()


def test_a_leader_that_can_only_receive_loses_no_change(replication: Replication, nodes: dict[str, Node]):
    leader = replication.leader
    others = [node for name, node in nodes.items() if name != leader.name]
    with nodes[leader.name].lost_packets_to(*others):
        # The servers may elect another leader or not: the former one still receives.
        replication.await_failures(1)
    replication.await_publishing()
    replication.await_current(leader)
    replication.check()


def test_without_a_majority_nothing_is_acknowledged_and_readers_age(replication: Replication, nodes: dict[str, Node]):
    with nodes["n0"].closed_link(), nodes["n1"].silent_loss():
        replication.await_failures()
        acknowledged = dict(replication.publisher.acknowledged)
        for reader in replication.readers:
            eventually(lambda reader=reader: is_stale(reader.feed))  # type: ignore[misc]  # a default has no type
        assert replication.publisher.acknowledged == acknowledged
    replication.await_publishing()
    replication.check()


def test_a_disconnected_publisher_resumes(replication: Replication, nodes: dict[str, Node]):
    with nodes["publisher"].silent_loss():
        replication.await_failures()
        for reader in replication.readers:
            eventually(lambda reader=reader: reader.feed.age < 1)  # type: ignore[misc]  # a default has no type
    replication.await_publishing()
    replication.check()


@pytest.mark.parametrize("fault", [Node.silent_loss, Node.closed_link])
def test_a_disconnected_reader_ages_and_catches_up(
    replication: Replication, nodes: dict[str, Node], fault: Callable[[Node], AbstractContextManager[None]]
):
    reader, other = replication.readers
    with fault(nodes["reader"]):
        eventually(lambda: is_stale(reader.feed))
        shown = spots(reader.live)
        other.await_later_than(replication.publisher.sent)
        assert spots(reader.live) == shown
    reader.await_later_than(replication.publisher.sent)
    replication.check()
