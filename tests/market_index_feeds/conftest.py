"""Fixtures for the tests of feeds and stores. Each medium has its own fixture `store`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, Store, open_feed, open_store
from tests.market_index_feeds.made_up import book


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "market_index_feeds")
    return caplog


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex()


@pytest.fixture
def feed(store: Store, live: LiveIndex) -> Iterator[Feed]:
    """A feed of three pairs, which is being followed."""
    store.publish(book(1, 1), book(2, 2), book(3, 3))
    with open_feed(store.target) as feed:
        feed.start(live)
        yield feed


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Store]:
    """A store that a relay follows."""
    with open_store(tmp_path / "market.db", synchronous="normal") as store:
        yield store


@pytest.fixture(params=["file", "bucket"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The store of a relay, which does not exist yet."""
    return str(tmp_path / "copy.db") if request.param == "file" else str(request.getfixturevalue("bucket"))
