"""Hypothesis profiles, and the recorded books that some tests read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=60, deadline=None, print_blob=True)
settings.register_profile(
    "thorough", max_examples=600, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

RECORDED = Path(__file__).resolve().parents[2] / "shared" / "data"


def recorded(name: str) -> Path:
    path = RECORDED / name
    if not path.exists():
        pytest.skip(f"the recorded file {name} is not beside the project")
    return path


@pytest.fixture
def recorded_order_books() -> Path:
    return recorded("order-books.ndjson")


@pytest.fixture
def recorded_level_changes() -> Path:
    return recorded("l2-stream.ndjson.gz")
