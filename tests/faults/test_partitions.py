"""Network partitions of a cluster of NATS servers: each version that a reader shows is what one change left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from tests import nats
from tests.faults.namespaces import Node, Unavailable, network
from tests.feeds.nats_history import History
from tests.waiting import eventually

pytestmark = pytest.mark.thorough

Fault: TypeAlias = Callable[[Node], AbstractContextManager[None]]

SERVERS = ("n0", "n1", "n2")


@pytest.fixture
def nodes() -> Iterator[dict[str, Node]]:
    """Nodes for each server, and one for the publisher and the readers."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(network([*SERVERS, "observer"]))
        except Unavailable as error:
            pytest.skip(str(error))
        yield made


@pytest.fixture
def servers(nodes: dict[str, Node], tmp_path: Path) -> Iterator[dict[str, nats.Server]]:
    """A cluster whose servers run on their nodes."""
    routes = ", ".join(f'"nats://{nodes[name].address}:6222"' for name in SERVERS)
    with ExitStack() as stack:
        servers = {}
        for name in SERVERS:
            host = nodes[name].address
            routed = f'cluster {{ name: "cluster", listen: "{host}:6222", routes: [{routes}] }}'
            server = nats.Server(tmp_path / "three", name, routed, host=host, prefix=nodes[name].prefix)
            stack.callback(server.kill)
            server.start()
            servers[name] = server
        for server in servers.values():
            nodes["observer"].inside(server.wait)
        yield servers


@pytest.mark.parametrize("fault", [Node.silent_loss, Node.closed_link])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_server_that_is_cut_off_loses_no_change(
    nodes: dict[str, Node], servers: dict[str, nats.Server], role: str, fault: Fault
):
    url = f"nats://{','.join(server.address for server in servers.values())}/books"

    def check() -> None:
        nats.opened(url).close()
        history = History(url, wait=2)
        history.publish()
        leader = nats.leader_of(servers["n0"], "books")
        name = leader if role == "leader" else next(name for name in SERVERS if name != leader)
        with history.followed(3) as await_last:
            with fault(nodes[name]):
                for _ in range(20):
                    history.publish()
                await_last()
            for _ in range(20):
                history.publish()
            other = next(server for one, server in servers.items() if one != name)
            eventually(lambda: name in nats.current_of(other, "books"))
            await_last()
        assert history.read() == history.last

    # Threads inherit the namespace of the thread that starts them.
    nodes["observer"].inside(check)
