"""Fixtures for media of lines: pipes, and short intervals between checks of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from market_index_feeds import backoff, line_source


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_source, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(line_source, "STREAM_IDLE_SECONDS", 0.05)
    monkeypatch.setattr(backoff, "LONGEST_SECONDS", 0.05)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path
