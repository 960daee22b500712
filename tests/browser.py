"""A real browser, as a person has one: Debian's Chromium, without a window, driven by Playwright."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from market_index import LiveIndex, OrderBook, Pair, format_price
from tests.page import app_with_page
from tests.service import served
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

CHROMIUM = shutil.which("chromium")

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium, and end it; skip where it, or what drives it, is not there."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("the browser is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that somebody looks at, and whatever the browser complained of."""

    def __init__(self, page: Page, port: int) -> None:
        self.page, self.port = page, port
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def _hear(self, message: ConsoleMessage) -> None:
        self.complaints.append(message.text)

    def open(self, pair: Pair | None = None, prefix: str = "/") -> Page:
        fragment = f"#base={pair.base}&quote={pair.quote}" if pair else ""
        self.page.goto(f"http://127.0.0.1:{self.port}{prefix}{fragment}")
        return self.page

    def text(self, selector: str) -> str:
        return self.page.locator(selector).text_content() or ""

    def facts(self) -> dict[str, str]:
        return dict(
            self.page.locator(".facts > div").evaluate_all(
                "all => all.map(one => [...one.children].map(c => c.textContent))"
            )
        )

    def ladder(self) -> list[tuple[str, str, str, str]]:
        rows = self.page.locator(".ladder tr[data-price]").evaluate_all(
            "all => all.map(row => [...row.children].map(cell => cell.textContent))"
        )
        return [(side, price, amount, total) for side, price, amount, total in rows]

    def pairs(self) -> list[str]:
        return self.page.locator("#list .name").all_text_contents()

    def waits_for(self, selector: str, text: str) -> None:
        """Wait until an element has this text in it."""
        self.page.locator(selector).filter(has_text=text).first.wait_for()

    def shows(self, selector: str, text: str | re.Pattern[str]) -> None:
        """Wait until the element has this text and no other."""
        self._expect(selector).to_have_text(text, timeout=DEADLINE_SECONDS * 1000)

    def is_visible(self, selector: str, *, expected: bool = True) -> None:
        """Wait until the first such element is visible, or is not."""
        self._expect(selector, first=True).to_be_visible(visible=expected, timeout=DEADLINE_SECONDS * 1000)

    def _expect(self, selector: str, *, first: bool = False) -> Any:
        from playwright.sync_api import expect  # skipped without it, as `chromium` is

        found = self.page.locator(selector)
        return expect(found.first if first else found)

    def becomes(self, read: Callable[[], object], expected: object) -> None:
        """Wait until what is read of the page is what is expected."""
        self.until(lambda: read() == expected, lambda: f"{read()!r} is not {expected!r}")

    def until(self, holds: Callable[[], bool], failure: Callable[[], str] = lambda: "it did not come about") -> None:
        """Wait until something holds, while the browser's events are handled."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, failure()
            self.page.wait_for_timeout(20)


@contextmanager
def visiting(browser: Browser, port: int, *, width: int = 1280, expected: str = "", **settings: Any) -> Iterator[Visit]:
    """Look at the page; in the end there is nothing that the browser complained of but what was expected."""
    context = browser.new_context(viewport={"width": width, "height": 800}, **settings)
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    try:
        visit = Visit(context.new_page(), port)
        yield visit
        complaints = [one for one in visit.complaints if not expected or expected not in one]
        assert complaints == []
        assert all(url.startswith((f"http://127.0.0.1:{port}/", "data:")) for url in visit.asked)
    finally:
        context.close()


@contextmanager
def visited(browser: Browser, live: LiveIndex, **settings: Any) -> Iterator[Visit]:
    with served(app_with_page(live)) as service, visiting(browser, service.port, **settings) as visit:
        yield visit


def as_laddered(book: OrderBook) -> list[tuple[str, str, str, str]]:
    """Return the rows of the ladder of a book: asks above, the lowest nearest to the bids."""
    rows: dict[str, list[tuple[str, str, str, str]]] = {"ask": [], "bid": []}
    for side, levels in (("ask", book.asks), ("bid", book.bids)):
        total = 0
        for level in levels:
            total += level.accumulated_liquidity
            rows[side].append((side, format_price(level.price), f"{level.accumulated_liquidity:,}", f"{total:,}"))
    return [*reversed(rows["ask"]), *rows["bid"]]
