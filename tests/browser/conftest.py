"""A fixture: Debian's Chromium, headless, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


# Not of session scope: Playwright runs an event loop in this thread, and tests of other packages run their own.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = shutil.which("chromium") or pytest.skip("the browser is not installed: apt-get install chromium")
    playwright.expect.set_options(timeout=DEADLINE_SECONDS * 1000)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
