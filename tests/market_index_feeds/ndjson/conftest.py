"""Fixtures for files and pipes of lines, with short intervals between checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.market_index_feeds.line_fixtures import pipe

__all__ = ["path", "pipe"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "books.ndjson"
