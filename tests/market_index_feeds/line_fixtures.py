"""Fixtures for media of lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path
