"""Fixtures: a browser, and a service of the sample books with the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from market_index import LiveIndex
from tests.browser.visit import chromium
from tests.page import app_with_page, sample
from tests.service import Service, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="package")
def sample_service() -> Iterator[Service]:
    """A service of the sample books, with the page."""
    with served(app_with_page(LiveIndex(sample()))) as service:
        yield service


# Not of session scope: Playwright runs an event loop in this thread, and tests of other packages run their own.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started
