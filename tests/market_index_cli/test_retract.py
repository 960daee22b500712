"""`market-index retract`."""

from __future__ import annotations

from pathlib import Path

from market_index import ADA, AssetId, OrderBook, Pair
from market_index_feeds import open_feed, open_store
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


def test_a_pair_is_retracted_by_its_names(store: Path):
    invoke("publish", store, SAMPLE)
    done = invoke("retract", store, "ada", "iusd")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{store}: ADA/{IUSD} retracted, revision 2\n", "")
    done = invoke("retract", store, "ADA", "iUSD")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Error: Pair ADA/iUSD not found\n")


def test_names_of_several_pairs_retract_none(store: Path):
    with open_store(store) as publishing:
        publishing.publish(*[OrderBook(Pair(AssetId(bytes([number]) * 28, b"SNEK"), ADA)) for number in (1, 2)])
    done = invoke("retract", store, "SNEK", "ADA")
    assert (done.returncode, done.stdout) == (2, "")
    assert "2 pairs are named SNEK/ADA; use the identifiers of one:" in done.stderr
    assert len(open_feed(store).read()) == 2


def test_an_identifier_in_another_spelling_is_wrong_usage(store: Path):
    invoke("publish", store, SAMPLE)
    done = invoke("retract", store, "lovelace", IUSD)
    assert done.returncode == 2
    assert "lovelace is written ADA here" in done.stderr


def test_a_malformed_identifier_is_wrong_usage(store: Path):
    """To retract a pair again is harmless, so programs may ignore exit code 1."""
    invoke("publish", store, SAMPLE)
    done = invoke("retract", store, f"{IUSD}9", "ADA")
    assert done.returncode == 2
    assert "the asset name must have an even number of digits" in done.stderr
    done = invoke("retract", store, IUSD[1:], "ADA")
    assert done.returncode == 2
    assert len(open_feed(store).read()) == 13
