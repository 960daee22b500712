"""`market-index retract`. Its errors are in `test_exits.py`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
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


def test_an_invalid_record_is_retracted(store: Path):
    invoke("publish", store, SAMPLE)
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE books SET body = '{}' WHERE pair = ?", [f"ADA/{IUSD}"])
    with open_feed(store) as feed:
        feed.read()
        assert feed.health.current_rejections == 1
    done = invoke("retract", store, "ADA", IUSD)
    assert (done.returncode, done.stdout) == (0, f"{store}: ADA/{IUSD} retracted, revision 2\n")
    with open_feed(store) as feed:
        feed.read()
        assert feed.health.current_rejections == 0
