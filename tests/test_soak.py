"""The soak test of `make nightly`, for a short time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.__main__ import soak


@pytest.mark.thorough
def test_a_short_soak_has_no_wrong_response(tmp_path: Path):
    soak(tmp_path, lambda actors: all(actor.acts >= 2 for actor in actors))
