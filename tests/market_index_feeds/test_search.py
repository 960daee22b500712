"""The promises of feeds and relays hold in every state that a few events reach; see `search.py`."""

from __future__ import annotations

import pytest

from market_index_feeds import Feed
from tests.market_index_feeds.search import COMPLETE, INCOMPLETE, Search, Violation, run

DEPTH = 2


def test_no_short_history_breaks_a_promise():
    search = Search()
    search.run(DEPTH)
    assert not search.tests()
    assert search.states > 1000


def test_the_search_finds_a_broken_promise(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Feed, "_lacking", lambda _: None)
    search = Search()
    search.run(1)
    assert any('run("replace 01", "settle", "wipe A", "settle", promise="healthy")' in test for test in search.tests())
    with pytest.raises(Violation, match="a new one"):
        run(*COMPLETE, "wipe A", "settle", promise="healthy")


def test_an_unknown_promise_is_an_error():
    with pytest.raises(KeyError):
        run(promise="fast")


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([], id="a blank medium is a problem"),
        pytest.param([*COMPLETE, "wipe A", "settle"], id="a source that is created again keeps its pairs"),
        pytest.param([*COMPLETE, "wipe B", "delay 1", "step", "step", "read B"], id="so does a store of a relay"),
        pytest.param([*COMPLETE, "wipe B", "settle"], id="the store is healthy once a relay has filled it again"),
        pytest.param([*COMPLETE, "wipe A", "publish 0", "restart"], id="a restarted relay retracts no unnamed pair"),
        pytest.param([*COMPLETE, "garbage B", "settle"], id="a relay corrects an invalid record"),
        pytest.param([*COMPLETE, "garbage B", "restart", "settle"], id="so does one that is restarted"),
        pytest.param([*COMPLETE, "garbage A", "replace 01"], id="so does a replacement"),
        pytest.param(
            [*COMPLETE, "retract 0", "unreadable", "reconnect A"], id="an invalid record does not hide a tombstone"
        ),
        pytest.param(
            ["replace 0", "settle", "retract 0", "restart", "settle"], id="a restarted relay retracts the last pair"
        ),
        pytest.param(
            [*COMPLETE, "wipe A", "restart", "replace 0", "settle"], id="a relay compares when all pairs are named"
        ),
        pytest.param(
            ["garbage B", "settle", "replace 01", "retract 0", "settle"], id="a relay removes an invalid record"
        ),
        pytest.param(
            [*INCOMPLETE, "garbage A", "restart", "retract 0", "settle"],
            id="a relay retracts a kept pair that its source retracts later",
        ),
        pytest.param(
            [*INCOMPLETE, "retract 0", "read A", "delay 0", "step", "heartbeat", "settle"],
            id="a relay retracts what its source retracted while its store failed",
        ),
    ],
)
def test_these_histories_break_no_promise(history: list[str]):
    run(*history)
