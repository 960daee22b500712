"""A store in a file, opened for publishing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index_feeds import Store, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "market.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path, wait=0.2) as store:
        yield store
