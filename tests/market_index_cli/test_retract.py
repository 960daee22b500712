"""`market-index retract`."""

from __future__ import annotations

from pathlib import Path

from market_index_feeds import open_feed
from tests.command import BOOK, SAMPLE, invoke, run

IUSD = BOOK["quote"]


def test_a_pair_is_retracted_once_and_then_not_found(store: Path):
    invoke("publish", store, SAMPLE)
    done = run("retract", store, "ADA", IUSD)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{store}: ADA/{IUSD} retracted, revision 2\n", "")
    assert len(open_feed(store).read()) == 12
    done = invoke("retract", store, "ADA", IUSD)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: Pair ADA/{IUSD} not found\n")


def test_a_missing_store_is_not_created(store: Path):
    done = invoke("retract", store, "ADA", IUSD)
    assert (done.returncode, done.stderr) == (3, f"Error: {store} cannot be opened: No such file or directory\n")
    assert list(store.parent.iterdir()) == []


def test_an_invalid_identifier_is_wrong_usage(store: Path):
    done = invoke("retract", store, "ada", IUSD)
    assert done.returncode == 2
    assert "Invalid value for 'BASE': an asset identifier must be ADA" in done.stderr
