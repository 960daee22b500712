"""`/livez`, `/readyz` and `/healthz`, with a feed in each state."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest

from market_index import Freshness, LiveIndex
from market_index_feeds import open_feed
from market_index_http.operating import Health
from tests.apps import composed
from tests.asgi import request
from tests.command import SAMPLE
from tests.feed_state import FeedState
from tests.feeds.made_up import book

FRESH = Freshness("slot 7", datetime(2026, 11, 22, 4, 17, 3, tzinfo=UTC))


def answer(health: Health, path: str, live: LiveIndex | None = None) -> tuple[int, Any]:
    """Return the status and the content of a probe."""
    response = request(composed(live or LiveIndex(), health=health), path)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    return response.status, json.loads(response.body)


def test_the_details_are_those_of_the_index_and_the_feed():
    live = LiveIndex()
    live.update([book(1)], freshness=FRESH)
    feed = FeedState(revision=7, age=1.23456, quiet_age=2.5, change_age=3.5, current_rejections=2, saturated_levels=3)
    feed.skipped_by_reason = {"expired": 3}
    expected = {
        "pairs": 1,
        "revision": 7,
        "as_of": "slot 7",
        "published_at": "2026-11-22T04:17:03.000Z",
        "quiet_seconds": 2.5,
        "max_quiet_seconds": 30,
        "unchanged_seconds": 3.5,
        "age_seconds": 1.235,
        "problem": None,
        "current_rejections": 2,
        "saturated_levels": 3,
        "skipped_outputs": {"expired": 3},
        "process": os.getpid(),
    }
    assert answer(Health(feed, 60, 30), "/healthz", live) == (200, expected)
    feed.age, feed.quiet_age, feed.problem = 61.04, 45.0, "cannot be read: it is damaged"
    assert answer(Health(feed, 60, 30), "/healthz", live) == (
        503,
        expected
        | {
            "error": "the feed was last healthy 61.0 seconds ago; the publisher last published 45.0 seconds ago",
            "age_seconds": 61.04,
            "quiet_seconds": 45.0,
            "problem": "cannot be read: it is damaged",
        },
    )
    feed.quiet_age = feed.change_age = inf
    _, never = answer(Health(feed), "/healthz")
    assert {never[name] for name in ("as_of", "published_at", "quiet_seconds", "unchanged_seconds")} == {None}


LOADING, NEVER = "the feed is not loaded", "nothing was ever published into the feed"


@pytest.mark.parametrize(
    ("health", "failures"),
    [
        (Health(FeedState(age=60, quiet_age=30), 60, 30), []),
        (Health(FeedState(age=60.001, quiet_age=30), 60, 30), ["the feed was last healthy 60.0 seconds ago"]),
        (Health(FeedState(age=60, quiet_age=30.001), 60, 30), ["the publisher last published 30.0 seconds ago"]),
        (Health(FeedState(age=1e9, quiet_age=1e9)), []),
        # What the feed tries again is no failure within `max_stale`. What only the publisher can end is one at once.
        (Health(FeedState(problem="cannot be read"), 60), []),
        (Health(FeedState(problem="has ended", is_unknown=True), 60), ["feed: has ended"]),
        (Health(FeedState(quiet_age=inf)), [NEVER]),
        (Health(FeedState(quiet_age=inf), None, 30), [NEVER]),
        (Health(), [LOADING]),
        (Health(FeedState(age=inf)), [LOADING]),
        (Health(open_feed(SAMPLE).health), [LOADING]),
        (Health(FeedState(age=inf, problem="cannot be read: only 7 of 9 pairs were requested in 60 seconds")), []),
    ],
)
def test_probes_report_each_check_that_failed(health: Health, failures: list[str]):
    error = {"error": "; ".join(failures)} if failures else {}
    status = 503 if failures else 200
    assert health.failures() == failures
    assert answer(health, "/readyz") == (status, {"status": "not ready" if failures else "ready", **error})
    found, details = answer(health, "/healthz")
    assert (found, details.get("error")) == (status, error.get("error"))
    assert answer(health, "/livez") == (200, {"status": "alive"})
