"""Publishers, relays and recorders that are killed at random times. `make test-faults` kills more of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from market_index import LiveIndex
from market_index_feeds import Store, open_feed, open_store, replay
from tests.faults.actors import KILLS, books, command_killed, generation_of, publisher_killed
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

ROUNDS_PER_FILE = 10
"""After so many kills, the recording is removed: it would take long to read, and a new one is created."""

few_or_many = pytest.mark.parametrize("kills", [3, pytest.param(KILLS, marks=pytest.mark.thorough, id="many")])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "market.db", synchronous="normal") as store:
        store.publish(*books(1))
        yield store


@contextmanager
def publishing(store: Store) -> Iterator[list[int]]:
    """Publish one generation after the other. Yield those that are published."""
    is_over, published = Event(), [1]

    def publish() -> None:
        while not is_over.wait(0.005):
            store.publish(*books(published[-1] + 1))
            published.append(published[-1] + 1)

    thread = in_thread(publish)
    try:
        yield published
    finally:
        is_over.set()
        thread.join(DEADLINE_SECONDS)


@few_or_many
def test_a_killed_publisher_loses_no_acknowledged_change(tmp_path: Path, kills: int):
    numbers, path, live, generation = random.Random(kills), tmp_path / "market.db", LiveIndex(), 0
    open_store(path).close()
    with open_feed(path) as feed:
        feed.start(live)
        for _ in range(kills):
            acknowledged = publisher_killed(path, generation + 1, numbers.random() * 0.05)
            stored = open_feed(path)
            generation = generation_of(stored.read())
            # The change that was interrupted is stored as a whole, or not at all.
            assert generation in {acknowledged, acknowledged + 1}
            assert stored.rejected == 0
            eventually(lambda generation=generation: generation_of(live.current) == generation)  # type: ignore[misc]  # a default has no type
        assert (feed.problem, feed.rejected) == (None, 0)


@few_or_many
def test_a_killed_relay_leaves_a_version_of_its_feed(tmp_path: Path, store: Store, kills: int):
    numbers, target = random.Random(kills), tmp_path / "target.db"
    with publishing(store) as published:
        for _ in range(kills):
            command_killed("relay", store.name, target, after=numbers.random() * 0.1)
            assert generation_of(open_feed(target).read()) in published
        command_killed("relay", store.name, target, after=0)
    assert len(published) > kills


@few_or_many
def test_a_killed_recorder_leaves_a_valid_recording(tmp_path: Path, store: Store, kills: int):
    numbers, recording, changes = random.Random(kills), tmp_path / "recording.ndjson", 0
    with publishing(store):
        for number in range(kills):
            command_killed("record", store.name, recording, after=numbers.random() * 0.1)
            generations = [generation_of(index) for _, index in replay(recording)]
            assert generations == sorted(generations)
            feed = open_feed(recording)
            assert (generation_of(feed.read()), feed.rejected) == (generations[-1], 0)
            changes += len(generations)
            if number % ROUNDS_PER_FILE == ROUNDS_PER_FILE - 1:
                recording.unlink()
    assert changes > kills
