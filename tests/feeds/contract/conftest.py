"""The medium of a law."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index import LiveIndex
from tests.feeds.contract.medium import Medium


@pytest.fixture
def medium(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Medium]:
    made: Medium = request.param(tmp_path, request)
    yield made
    made.close()


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex()
