"""A real service serves other clients while hostile clients attack it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from statistics import median

import pytest

from market_index import LiveIndex, OrderBook
from market_index_http import create_app
from tests.faults.hostile_clients import (
    HEAD,
    MIB,
    PAIR_LIST,
    Observer,
    burst,
    half_open,
    memory_mib,
    sent_until_closed,
    target,
)
from tests.market_index_feeds.made_up import pair
from tests.service import Client, served
from tests.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("piece", [b"X: %s\r\n" % (b"x" * 1000) * 64, b"x" * 65536])
def test_an_endless_request_head_uses_no_memory(piece: bytes):
    with target() as attacked, closing(Client(attacked.port)) as honest, closing(Client(attacked.port)) as hostile:
        before = attacked.memory_mib("VmHWM")
        hostile.socket.sendall(HEAD)
        assert sent_until_closed(hostile, piece, 300 * MIB) < 300 * MIB
        assert honest.request(PAIR_LIST).status == 200
        assert attacked.memory_mib("VmHWM") < before + 16


@pytest.mark.parametrize(("open_files", "connections"), [(128, 200), (1024, 1000)])
def test_changes_are_served_while_half_open_connections_reach_the_limit(open_files: int, connections: int):
    with target(open_files=open_files) as attacked, ExitStack() as stack:
        half_open(attacked.port, connections, stack)
        for spot in range(2, 5):
            attacked.publish(spot)
            with closing(Client(attacked.port)) as honest:
                eventually(partial(attacked.shows, honest, spot))
                assert honest.request("/healthz").status == 200


def test_a_burst_of_connections_leaves_file_descriptors_for_feeds():
    with target(open_files=128) as attacked, ExitStack() as stack:
        burst(attacked.port, 1000, stack)
        with closing(Client(attacked.port)) as honest:
            # This connection is accepted after all others.
            assert honest.request("/healthz").status == 200
        assert "Too many open files" not in attacked.running.stderr


@pytest.mark.parametrize("publishes", [False, True])
def test_responses_that_clients_do_not_read_use_little_memory(publishes: bool):
    levels = [(f"0.{number:012}", 2**60 + number) for number in range(1, 170_001)]
    asks = [(f"1{price[1:]}", amount) for price, amount in levels]
    huge = OrderBook.from_levels(pair(0xABCD), bids=levels, asks=asks)
    live = LiveIndex([huge])
    upper = f"/trading-view/order-book?base={huge.pair.base}&quote=ADA".replace("abcd", "ABCD")
    with served(create_app(live)) as service, ExitStack() as stack:
        assert len(service.request(upper).body) > 24_000_000
        before, observer = memory_mib(), Observer(stack.enter_context(closing(Client(service.port))))
        with observer.observing():
            for number in range(1, 101):
                hostile = stack.enter_context(closing(Client(service.port)))
                hostile.socket.sendall(f"GET {upper} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
                assert hostile.socket.recv(1) == b"H"
                if publishes:
                    huge = huge.apply(bids=[(f"0.{1700 * number:012}", number)])
                    live.publish(huge)
        assert memory_mib() < before + 150
        assert median(observer.milliseconds) < 100


WAITING_HEAD = f"GET {PAIR_LIST} HTTP/1.1\r\nHost: test\r\nPrefer: wait=30\r\nIf-None-Match: "


def waiting(port: int, count: int, stack: ExitStack) -> list[Client]:
    """Open connections, and send a request that waits for a change of the pair list on each."""
    clients = [stack.enter_context(closing(Client(port))) for _ in range(count)]
    etag = clients[0].request(PAIR_LIST).headers["etag"]
    for client in clients:
        client.socket.sendall(f"{WAITING_HEAD}{etag}\r\n\r\n".encode())
    return clients


def test_clients_that_wait_disconnect_and_never_read_leave_no_memory():
    with target(open_files=4096) as attacked, closing(Client(attacked.port)) as honest:
        memory = []
        for number in range(2, 14):
            with ExitStack() as stack:
                clients = waiting(attacked.port, 1_000, stack)
                for client in clients[::2]:
                    client.close()
                attacked.publish(number)
                eventually(lambda: attacked.shows(honest, number))  # noqa: B023  # called before the next number
            attacked.publish(number + 100)
            eventually(lambda: attacked.shows(honest, number + 100))  # noqa: B023  # called before the next number
            memory.append(attacked.memory_mib())
        # The first rounds fill the allocator and the caches.
        assert memory[-1] < memory[2] + 4, memory


def test_a_signal_ends_1000_waits_each_with_a_response():
    with target(open_files=4096) as attacked, ExitStack() as stack:
        clients = waiting(attacked.port, 1_000, stack)
        with closing(Client(attacked.port)) as last:
            # The server has received all requests before this one.
            assert last.request(PAIR_LIST).status == 200
        attacked.running.process.terminate()
        assert {client.send(b"").status for client in clients} == {304}
        assert attacked.running.process.wait(DEADLINE_SECONDS) == 0
