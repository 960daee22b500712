"""What the tests of the medium NATS have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index_feeds import Store, open_store
from market_index_feeds.nats.retry import Patience
from tests import nats

SHORT = Patience(connect=0.3, answer=0.3)


@pytest.fixture
def store(bucket: str) -> Iterator[Store]:
    with open_store(bucket) as store:
        yield store


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[nats.Server]:
    """A server of one test, which may do anything to it."""
    with nats.served(tmp_path / "own", "max_payload: 65536") as server:
        yield server
