"""A real browser: Debian's Chromium, headless, driven by Playwright."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from market_index import LiveIndex, OrderBook, Pair
from market_index.display import Tokens
from tests.page import app_with_page, fixed
from tests.service import served
from tests.waiting import DEADLINE_SECONDS

ROOT = Path(__file__).resolve().parents[2]

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OVERFLOWING = """() => [
  ...(document.documentElement.scrollWidth > innerWidth ? ["the page"] : []),
  ...[...document.querySelectorAll(".ladder td, .facts, .facts dd, .units, #list .policies, #list .spot")]
    .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent),
]"""


class Visit:
    """A tab with the page: what it shows, its requests, and the console messages of the browser.

    Methods that assert something wait until it is true.
    """

    def __init__(self, page: Page, port: int) -> None:
        self.page, self.port = page, port
        self.messages: list[str] = []
        self.requested: list[str] = []
        # The timeouts of requests are real: otherwise `poll` would end the requests in flight.
        page.context.add_init_script("globalThis.realTimeout = AbortSignal.timeout.bind(AbortSignal);")
        page.clock.install()  # it runs in real time; `poll` moves it forward
        page.context.add_init_script("AbortSignal.timeout = globalThis.realTimeout;")
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("dialog", lambda dialog: self.messages.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: self.requested.append(request.url))

    def open(self, pair: Pair | None = None, prefix: str = "/") -> Page:
        """Go to the page of all pairs, or of one."""
        fragment = f"#base={pair.base}&quote={pair.quote}" if pair else ""
        self.page.goto(f"http://127.0.0.1:{self.port}{prefix}{fragment}")
        return self.page

    def open_live(self, pair: Pair | None = None) -> Page:
        """Go to the page, and wait until everything was requested once."""
        page = self.open(pair)
        self.is_live()
        return page

    def poll(self) -> None:
        """Move the clock of the page by the interval of its requests, but not by the silence that ends a stream."""
        self.page.clock.run_for(4_900)

    def facts(self) -> dict[str, str]:
        return dict(
            self.page.locator(".facts > div").evaluate_all(
                "all => all.map(one => [...one.children].map(c => c.textContent))"
            )
        )

    def ladder(self) -> list[tuple[str, str, str, str]]:
        rows = self.page.locator(".ladder tr[style]").evaluate_all(
            "all => all.map(row => [...row.children].map(cell => cell.textContent.trim()))"
        )
        return [(price, amount, value, total) for price, amount, value, total in rows]

    def marked(self) -> list[str]:
        """Return the prices of the rows that are marked as changed."""
        return list(
            self.page.locator(".ladder [data-change]").evaluate_all(
                "all => all.map(row => row.firstElementChild.textContent.trim())"
            )
        )

    def pairs(self) -> list[str]:
        return self.page.locator("#list .name").all_text_contents()

    def is_live(self) -> None:
        self.shows("#connection", "Live")

    def fits(self) -> None:
        """Assert that no element overflows, with light and dark colours."""
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            self.becomes(lambda: self.page.evaluate(OVERFLOWING), [])

    def shows(self, selector: str, text: str | re.Pattern[str]) -> None:
        """Assert that the element has exactly this text."""
        self._expect(selector).to_have_text(text)

    def contains(self, selector: str, text: str) -> None:
        """Assert that an element contains this text."""
        self.page.locator(selector).filter(has_text=text).first.wait_for()

    def has(self, selector: str, count: int) -> None:
        """Assert that there are `count` such elements."""
        self._expect(selector).to_have_count(count)

    def is_visible(self, selector: str, *, expected: bool = True) -> None:
        """Assert that the first such element is visible, or is not."""
        self._expect(selector, first=True).to_be_visible(visible=expected)

    def _expect(self, selector: str, *, first: bool = False) -> Any:
        from playwright.sync_api import expect  # here: the tests are collected without Playwright

        found = self.page.locator(selector)
        return expect(found.first if first else found)

    def becomes(self, read: Callable[[], object], expected: object) -> None:
        """Assert that `read` returns what is expected, and handle the browser's events until then."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (found := read()) != expected:
            assert time.monotonic() < deadline, f"{found!r} is not {expected!r}"
            self.page.wait_for_timeout(20)


def axe() -> Path:
    """Return the script of axe-core, which `make browser` installs."""
    path = ROOT / ".venv" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
    return path if path.exists() else pytest.skip("axe-core is not installed: make browser")


@contextmanager
def visiting(browser: Browser, port: int, *, width: int = 1280, expected: str = "", **settings: Any) -> Iterator[Visit]:
    """Open a tab. At the end, the browser must have reported no message without the `expected` text."""
    context = browser.new_context(viewport={"width": width, "height": 800}, **settings)
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    try:
        visit = Visit(context.new_page(), port)
        yield visit
        assert [message for message in visit.messages if not expected or expected not in message] == []
        assert all(re.match(rf"http://(\S+@)?127\.0\.0\.1:{port}/|data:", url) for url in visit.requested)
    finally:
        context.close()


@contextmanager
def visited(browser: Browser, live: LiveIndex, tokens: Tokens | None = None, **settings: Any) -> Iterator[Visit]:
    """Serve the books with the page, and open a tab."""
    with served(app_with_page(live, tokens=tokens)) as service, visiting(browser, service.port, **settings) as visit:
        yield visit


def ladder_rows(book: OrderBook) -> list[tuple[str, str, str, str]]:
    """Return the rows of the ladder of a book of short numbers: asks above bids, the best of each in the middle."""
    rows: dict[str, list[tuple[str, str, str, str]]] = {"ask": [], "bid": []}
    for side, levels in (("ask", book.asks), ("bid", book.bids)):
        total = Fraction(0)
        for level in levels:
            value = Fraction(level.price) * level.accumulated_liquidity
            total += value
            rows[side].append(
                (number(Fraction(level.price)), f"{level.accumulated_liquidity:,}", number(value), number(total))
            )
    return [*reversed(rows["ask"]), *rows["bid"]]


def number(value: Fraction) -> str:
    """Return the exact text of a number, with its digits before the point in groups of three."""
    whole, point, places = fixed(value).partition(".")
    return f"{int(whole):,}{point}{places}"
