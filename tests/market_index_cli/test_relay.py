"""`market-index relay`."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from market_index_feeds import open_feed, open_store
from tests.command import SAMPLE, invoke, running, untimed
from tests.market_index_feeds.made_up import book, pair, spots
from tests.waiting import eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_file_feeds_a_bucket_until_a_signal_ends_it(bucket: str, tmp_path: Path, number: signal.Signals):
    store = tmp_path / "market.db"
    invoke("publish", store, SAMPLE)
    with running(tmp_path, store, bucket, command="relay") as relay:
        eventually(lambda: "relaying" in relay.stderr)
        assert untimed(relay.stderr) == f"relaying {store} into {bucket}: 13 pairs, revision 14\n"
        with open_store(store) as publishing:
            publishing.publish(book(1, 1))
        eventually(lambda: len(open_feed(bucket).read()) == 14)
        assert relay.end(number) == 0
    with open_store(store) as publishing:
        publishing.publish(book(1, 2))
        publishing.retract(pair(1))
    with running(tmp_path, store, bucket, command="relay") as relay:
        eventually(lambda: "13 pairs, revision 18" in relay.stderr)
        assert len(open_feed(bucket).read()) == 13


@pytest.mark.thorough
def test_a_killed_relay_does_not_damage_the_store(bucket: str, tmp_path: Path):
    store = tmp_path / "market.db"
    with open_store(store, synchronous="normal") as source:
        source.publish(*(book(number, 1) for number in range(200)))
        for spot in range(2, 8):
            with running(tmp_path, store, bucket, command="relay") as relay:
                eventually(lambda: "relaying" in relay.stderr)  # each round starts a relay and kills it
                source.publish(*(book(number, spot) for number in range(200)))
                time.sleep(0.01 * spot)  # the kill comes at another moment of the relaying each time
                relay.process.kill()
        with running(tmp_path, store, bucket, command="relay") as relay:
            eventually(lambda: spots(open_feed(bucket).read()) == dict.fromkeys(range(200), "7"))
