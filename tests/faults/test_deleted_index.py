"""Publishers of a file whose shared-memory index is deleted repeatedly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import deleted_index


@pytest.mark.thorough
def test_deleting_the_index_loses_no_acknowledged_change_and_repeats_no_revision(tmp_path: Path):
    outcome = deleted_index.run(tmp_path)
    assert outcome.acknowledged
    assert outcome.problem is None
    assert outcome.acknowledged <= outcome.stored == outcome.shown
    assert outcome.repeated == 0
