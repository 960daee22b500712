"""Paths of files that do not exist yet, and a check that no test changes the logging of the next one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_filter_is_left() -> Iterator[None]:
    """Check that a command within the test left no log filter: it would drop messages that a later test waits for."""
    yield
    assert not logging.getLogger("uvicorn.error").filters


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "market.db"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return tmp_path / "books.ndjson"
