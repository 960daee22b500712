"""A recorder that is killed at random times. `make test-faults` kills it more often."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from market_index import MarketIndex
from market_index_feeds import Store, open_feed, open_store, replay
from tests.command import running
from tests.faults.publisher import PAIRS, books
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

KILLS = int(os.environ.get("MARKET_INDEX_KILLS", "12"))

ROUNDS_PER_FILE = 10
"""After so many kills, the recording is removed: it would take long to read, and a new one is created."""


@contextmanager
def publishing(store: Store) -> Iterator[None]:
    """Publish one generation after the other."""
    is_over = Event()

    def publish() -> None:
        generation = 2
        while not is_over.wait(0.005):
            store.publish(*books(generation))
            generation += 1

    thread = in_thread(publish)
    try:
        yield
    finally:
        is_over.set()
        thread.join(DEADLINE_SECONDS)


def generation_of(index: MarketIndex) -> int:
    """Return the generation of all books of an index, which must be whole."""
    (generation,) = {int(str(book.spot)) for book in index.values()}
    assert list(index.values()) == books(generation)
    return generation


def check(recording: Path) -> int:
    """Assert that each change is a whole generation, later than the one before, and return their number."""
    generations = [generation_of(index) for _, index in replay(recording)]
    assert generations == sorted(generations)
    feed = open_feed(recording)
    assert generation_of(feed.read()) == generations[-1]
    assert feed.rejected == 0
    return len(generations)


@pytest.mark.parametrize("kills", [5, pytest.param(KILLS, marks=pytest.mark.thorough, id="many")])
def test_a_killed_recorder_leaves_a_valid_recording(tmp_path: Path, kills: int):
    path, recording = tmp_path / "market.db", tmp_path / "recording.ndjson"
    numbers = random.Random(kills)
    changes = 0
    with open_store(path, synchronous="normal") as store:
        store.publish(*books(1))
        with publishing(store):
            for number in range(kills):
                with running(tmp_path, path, recording, command="record") as recorder:
                    # Every fourth one is killed at its start.
                    if number % 4:
                        eventually(lambda recorder=recorder: "recording" in recorder.stderr)  # type: ignore[misc]  # a default has no type
                    time.sleep(numbers.random() * 0.3)  # the time of the kill is the subject of the test
                    recorder.process.kill()
                if recording.exists():
                    changes += check(recording)
                if number % ROUNDS_PER_FILE == ROUNDS_PER_FILE - 1:
                    recording.unlink()
    assert changes > kills, "most recorders must record before they are killed"
    assert len(open_feed(path).read()) == PAIRS
