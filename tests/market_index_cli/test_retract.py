"""`market-index retract`. Its errors are in `test_exits.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from market_index_feeds import open_feed
from tests.command import BOOK, SAMPLE, invoke

IUSD = BOOK["quote"]


@pytest.mark.parametrize("names", [("ADA", IUSD), ("ada", "iusd")])
def test_a_pair_is_retracted_once_and_then_not_found(store: Path, names: tuple[str, str]):
    invoke("publish", store, SAMPLE)
    done = invoke("retract", store, *names)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{store}: ADA/{IUSD} retracted, revision 2\n", "")
    assert len(open_feed(store).read()) == 12
    done = invoke("retract", store, *names)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: Pair {'/'.join(names)} not found\n")
