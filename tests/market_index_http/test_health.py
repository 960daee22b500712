"""`/livez`, `/readyz` and `/healthz`, with a feed in each state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from math import inf

import pytest

from market_index import Freshness, LiveIndex
from market_index_feeds import open_feed
from market_index_http import Health, create_app
from tests.command import SAMPLE
from tests.feed_state import FeedState
from tests.feeds.made_up import book
from tests.service import Service, served

FRESHNESS = {"as_of": "slot 7", "published_at": "2026-11-22T04:17:03.000Z"}


@pytest.fixture
def feed() -> FeedState:
    return FeedState()


@pytest.fixture
def service(feed: FeedState) -> Iterator[Service]:
    live = LiveIndex()
    live.update([book(1)], freshness=Freshness("slot 7", datetime(2026, 11, 22, 4, 17, 3, tzinfo=UTC)))
    with served(create_app(live, health=Health(feed, 60, 30))) as service:
        yield service


def test_it_reports_the_pairs_and_the_feed(service: Service, feed: FeedState):
    feed.revision, feed.age, feed.current_rejections = 7, 1.23456, 2
    feed.quiet_age, feed.change_age = 2.5, 3.5
    answer = service.request("/healthz")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json == {
        "pairs": 1,
        "revision": 7,
        **FRESHNESS,
        "quiet_seconds": 2.5,
        "max_quiet_seconds": 30,
        "unchanged_seconds": 3.5,
        "age_seconds": 1.235,
        "problem": None,
        "current_rejections": 2,
        "process": os.getpid(),
    }


@pytest.mark.parametrize(("age", "status"), [(60.0, 200), (60.001, 503), (1e9, 503)])
def test_it_fails_while_the_feed_is_too_old(service: Service, feed: FeedState, age: float, status: int):
    feed.age = age
    for path in ("/healthz", "/readyz"):
        answer = service.request(path)
        assert answer.status == status
        assert ("error" in answer.json) == (status == 503)
    feed.age = 0
    assert service.request("/healthz").status == 200


@pytest.mark.parametrize("problem", ["has ended", "contains no order book", "has an unknown state since line 7"])
def test_a_problem_that_does_not_pass_by_itself_fails_at_once(service: Service, feed: FeedState, problem: str):
    feed.problem, feed.is_unknown = problem, True
    answer = service.request("/healthz")
    assert (answer.status, answer.json["error"], answer.json["problem"]) == (503, f"feed: {problem}", problem)
    feed.is_unknown = False
    assert service.request("/healthz").status == 200


@pytest.mark.parametrize(("quiet_age", "status"), [(30.0, 200), (30.001, 503), (inf, 503)])
def test_it_fails_while_the_publisher_is_quiet_for_too_long(
    service: Service, feed: FeedState, quiet_age: float, status: int
):
    feed.quiet_age = quiet_age
    for path in ("/healthz", "/readyz"):
        answer = service.request(path)
        assert answer.status == status
        assert ("error" in answer.json) == (status == 503)


def test_it_names_each_check_that_failed(service: Service, feed: FeedState):
    healthy = service.request("/healthz").json
    feed.age, feed.quiet_age, feed.problem = 61.04, 45.0, "cannot be read: it is damaged"
    assert service.request("/healthz").json == healthy | {
        "error": "the feed was last healthy 61.0 seconds ago; the publisher last published 45.0 seconds ago",
        "age_seconds": 61.04,
        "quiet_seconds": 45.0,
        "problem": "cannot be read: it is damaged",
    }


def test_a_feed_that_was_never_published_into_is_not_healthy(feed: FeedState):
    feed.quiet_age = feed.change_age = inf
    with served(create_app(LiveIndex(), health=Health(feed))) as service:
        answer = service.request("/healthz")
        status = answer.json
        assert (answer.status, status["error"]) == (503, "nothing was ever published into the feed")
        assert [status[name] for name in ("as_of", "published_at", "quiet_seconds", "unchanged_seconds")] == [None] * 4
        feed.quiet_age = 1e9
        assert service.request("/healthz").status == 200


def test_without_a_limit_no_age_is_too_old(feed: FeedState):
    feed.age = feed.quiet_age = 1e9
    assert Health(feed).failures() == []


def test_the_process_is_alive_in_any_state_of_the_feed(service: Service, feed: FeedState):
    for feed.problem, feed.is_unknown, feed.age in ((None, False, 0.0), ("has ended", True, 1e9)):
        answer = service.request("/livez")
        assert (answer.status, answer.json, answer.headers["cache-control"]) == (200, {"status": "alive"}, "no-store")


def test_readiness_says_only_which_checks_failed(service: Service, feed: FeedState):
    answer = service.request("/readyz")
    assert (answer.status, answer.json, answer.headers["cache-control"]) == (200, {"status": "ready"}, "no-store")
    feed.problem, feed.is_unknown = "has ended", True
    answer = service.request("/readyz")
    assert (answer.status, answer.json) == (503, {"error": "feed: has ended", "status": "not ready"})


def test_an_app_whose_feed_is_not_loaded_is_not_ready(feed: FeedState):
    health = Health()
    with served(create_app(LiveIndex(), health=health)) as service:
        for path in ("/readyz", "/healthz"):
            answer = service.request(path)
            assert (answer.status, answer.json["error"]) == (503, "the feed is not loaded")
        health.feed = open_feed(SAMPLE)
        assert service.request("/readyz").json["error"] == "the feed is not loaded"
        health.feed = feed
        assert service.request("/readyz").status == 200


def test_a_feed_that_was_never_healthy_but_has_a_problem_is_loaded(feed: FeedState):
    feed.age, feed.problem = inf, "cannot be read: only 7 of 9 pairs were requested in 60 seconds"
    assert Health(feed).failures() == []


def test_an_app_does_not_have_the_routes_by_default():
    with served(create_app(LiveIndex())) as service:
        for path in ("/healthz", "/livez", "/readyz", "/metrics", "/openapi.json"):
            assert service.request(path).status == 404
