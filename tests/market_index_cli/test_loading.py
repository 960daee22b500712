"""Garbage collections while a command loads its feed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from market_index import ADA, AssetId, OrderBook, Pair
from market_index_cli.loading import loading
from market_index_feeds import open_store
from tests.command import run, running
from tests.market_index_feeds.made_up import book

REPORTING: Final = """
import gc, sys

def report(phase, collection):
    if phase == "stop" or collection["generation"] < 2:
        return
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_qualname in {"Feed._load", "Feed._updates"}:
                sys.stderr.write("full collection\\n")
            frame = frame.f_back

gc.callbacks.append(report)
gc.set_threshold(10, 1, 1)
"""
"""A module that Python imports first. It reports each full garbage collection while a feed is loaded."""


@pytest.fixture
def reporting(tmp_path: Path) -> dict[str, str]:
    """Variables of the environment for a process that reports full garbage collections."""
    (tmp_path / "sitecustomize.py").write_text(REPORTING)
    return {"PYTHONPATH": str(tmp_path)}


# Python collects all garbage several times while it loads them.
BOOKS: Final = OrderBook(Pair(AssetId(bytes(28), b"NAMED"), ADA)), *(book(number, 1) for number in range(2_000))


@pytest.fixture
def books(store: Path) -> Path:
    with open_store(store) as opened:
        opened.publish(*BOOKS)
    return store


@pytest.mark.parametrize("arguments", [("pairs",), ("dump",), ("book", "NAMED", "ADA")])
def test_no_full_collection_while_a_command_reads(books: Path, reporting: dict[str, str], arguments: tuple[str, ...]):
    command, *names = arguments
    done = run(command, books, *names, **reporting)
    assert "full collection" not in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("command", ["relay", "record"])
def test_no_full_collection_while_a_copy_starts(books: Path, reporting: dict[str, str], tmp_path: Path, command: str):
    target = tmp_path / ("copy.db" if command == "relay" else "recording.ndjson")
    with running(tmp_path, books, target, command=command, **reporting) as process:
        process.has_logged(f"{len(BOOKS)} pairs")
        assert "full collection" not in process.stderr
        assert process.end() == 0


def test_no_full_collection_while_a_bucket_is_loaded_to_be_served(
    bucket: str, reporting: dict[str, str], tmp_path: Path
):
    with open_store(bucket) as opened:
        opened.publish(*BOOKS)
    with running(tmp_path, bucket, "--port", 0, **reporting) as process:
        process.has_logged("listening on")
        assert "full collection" not in process.stderr
        assert process.end() == 0


@pytest.fixture
def unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("unfrozen")
def test_the_thresholds_are_restored_and_loaded_objects_are_frozen():
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with loading("market.db"):
        assert gc.get_threshold() != before
        loaded: list[list[int]] = [[] for _ in range(5_000)]
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() >= frozen + len(loaded)
