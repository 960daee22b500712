"""`market-index retract`."""

from __future__ import annotations

from pathlib import Path

from market_index_feeds import open_feed
from tests.command import BOOK, SAMPLE, run

IUSD = BOOK["quote"]


def test_a_pair_is_retracted_and_one_that_is_not_there_is_told_of(store: Path):
    run("publish", store, SAMPLE)
    done = run("retract", store, "ADA", IUSD)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{store}: ADA/{IUSD} retracted, revision 2\n", "")
    assert len(open_feed(store).read()) == 12
    done = run("retract", store, "ADA", IUSD)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: Pair ADA/{IUSD} not found\n")


def test_a_store_that_is_not_there_is_not_made(store: Path):
    done = run("retract", store, "ADA", IUSD)
    assert (done.returncode, done.stderr) == (3, f"Error: {store} cannot be opened: No such file or directory\n")
    assert list(store.parent.iterdir()) == []


def test_what_is_no_identifier_is_wrong_usage(store: Path):
    done = run("retract", store, "ada", IUSD)
    assert done.returncode == 2
    assert "Invalid value for 'BASE': 'ada'" in done.stderr
