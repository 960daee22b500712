"""A real service serves other clients while hostile clients attack it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from market_index import LiveIndex, OrderBook
from market_index_http import create_app
from tests.command import COMMAND
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
    without_uvloop,
)
from tests.market_index_feeds.made_up import pair
from tests.service import Client, served
from tests.waiting import eventually

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


def test_a_burst_of_connections_leaves_file_descriptors_for_feeds(tmp_path: Path):
    with target(command=without_uvloop(COMMAND, tmp_path), open_files=128) as attacked, ExitStack() as stack:
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
