"""Fixtures: a service with three books, and a feed that polls it at short intervals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed
from market_index_http import create_app
from tests.market_index_feeds.http.services import polled
from tests.market_index_feeds.made_up import book
from tests.service import served


@pytest.fixture
def upstream() -> LiveIndex:
    return LiveIndex([book(1, 1), book(2, 2), book(3, 3)])


@pytest.fixture(params=[0, 60], ids=["polling", "waiting"])
def feed(upstream: LiveIndex, live: LiveIndex, request: pytest.FixtureRequest) -> Iterator[Feed]:
    """A feed of a service that lets requests wait for so many seconds."""
    with served(create_app(upstream, max_wait=request.param)) as one, polled(f"http://127.0.0.1:{one.port}") as feed:
        feed.start(live)
        yield feed
