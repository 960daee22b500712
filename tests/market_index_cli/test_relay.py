"""`market-index relay`. Its errors are in `test_exits.py`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from market_index_feeds import open_feed, open_store
from tests.command import SAMPLE, invoke, running, untimed
from tests.feeds.made_up import book, pair
from tests.waiting import eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_file_feeds_a_bucket_until_a_signal_ends_it(bucket: str, tmp_path: Path, number: signal.Signals):
    store = tmp_path / "market.db"
    invoke("publish", store, SAMPLE)
    with running(tmp_path, store, bucket, command="relay") as relay:
        eventually(lambda: "relaying" in relay.stderr)
        assert untimed(relay.stderr).startswith(f"relaying {store} into {bucket}: 13 pairs, revision ")
        with open_store(store) as publishing:
            publishing.publish(book(1, 1))
        eventually(lambda: len(open_feed(bucket).read()) == 14)
        assert relay.end(number) == 0
    with open_store(store) as publishing:
        publishing.publish(book(1, 2))
        publishing.retract(pair(1))
    with running(tmp_path, store, bucket, command="relay") as relay:
        eventually(lambda: "13 pairs, revision " in relay.stderr)
        assert len(open_feed(bucket).read()) == 13
