"""Publishers that are killed at random times. `make test-faults` kills more of them."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, open_feed
from tests.faults.killed_publisher import KilledPublisher
from tests.waiting import eventually

PUBLISHER_KILLS = int(os.environ.get("MARKET_INDEX_KILLS", "12"))


@pytest.mark.parametrize("kills", [3, pytest.param(PUBLISHER_KILLS, marks=pytest.mark.thorough, id="many")])
def test_a_killed_publisher_loses_no_acknowledged_change(tmp_path: Path, kills: int):
    numbers = random.Random(kills)
    publisher = KilledPublisher(tmp_path / "market.db")
    live = LiveIndex()
    feed: Feed | None = None
    revision = 0
    with ExitStack() as stack:
        for number in range(kills):
            # Every fourth publisher is killed at its start, while it creates the file or recovers the log.
            seconds = numbers.random() * 0.05 if number % 4 else 0.1 + numbers.random() * 0.3
            publisher.run(seconds, acknowledges=number % 4 > 0)
            if not publisher.path.exists():
                continue
            publisher.check()
            if feed is None:
                feed = stack.enter_context(open_feed(publisher.path))
                feed.start(live)
            if number % 2:
                # The reader reopens the file. If no other process has it open, SQLite rebuilds the index from the log.
                os.utime(publisher.path)
            eventually(lambda: publisher.is_shown_by(live))
            assert (feed.revision or 0) >= revision
            revision = feed.revision or 0
        assert publisher.generation > kills // 4, "most publishers must publish before they are killed"
        publisher.publish()
        eventually(lambda: publisher.is_shown_by(live))
