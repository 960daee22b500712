"""Paths of files that do not exist yet."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "market.db"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return tmp_path / "books.ndjson"
