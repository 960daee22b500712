"""Fixtures: a service with three books, and a feed that polls it at short intervals."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, open_feed
from market_index_feeds.http import source
from market_index_http import create_app
from tests.market_index_feeds.made_up import book
from tests.service import served


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(source, "POLL_SECONDS", 0.01)
    caplog.set_level(logging.INFO, "market_index_feeds")
    return caplog


@pytest.fixture
def upstream() -> LiveIndex:
    return LiveIndex([book(1, 1), book(2, 2), book(3, 3)])


@pytest.fixture
def feed(upstream: LiveIndex, live: LiveIndex) -> Iterator[Feed]:
    with served(create_app(upstream)) as one, open_feed(f"http://127.0.0.1:{one.port}") as feed:
        feed.start(live)
        yield feed
