"""Fixture: a service of the sample books, with the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from market_index import LiveIndex
from tests.page import app_with_page, sample
from tests.service import Service, served


@pytest.fixture(scope="module")
def sent() -> Iterator[Service]:
    """A service of the sample books, with the page."""
    with served(app_with_page(LiveIndex(sample()))) as service:
        yield service
