"""A real service serves other clients while hostile clients attack it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from tests.command import COMMAND
from tests.faults.hostile_clients import (
    HEAD,
    MIB,
    PAIR_LIST,
    burst,
    half_open,
    sent_until_closed,
    target,
    without_uvloop,
)
from tests.service import Client
from tests.waiting import eventually

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("piece", [b"X: %s\r\n" % (b"x" * 1000) * 64, b"x" * 65536])
def test_an_endless_request_head_uses_no_memory(piece: bytes):
    with target() as attacked, closing(Client(attacked.port)) as honest, closing(Client(attacked.port)) as hostile:
        before = attacked.peak_mib
        hostile.socket.sendall(HEAD)
        assert sent_until_closed(hostile, piece, 300 * MIB) < 300 * MIB
        assert honest.request(PAIR_LIST).status == 200
        assert attacked.peak_mib < before + 16


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
