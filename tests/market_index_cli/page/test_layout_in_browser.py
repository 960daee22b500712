"""The layout of the page in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from market_index import LiveIndex, OrderBook, Pair
from tests.browser import visited, visiting
from tests.page import SNEK_ADA, app_with_page, sample, token
from tests.service import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_it_fits_a_phone_a_tablet_and_a_desk(browser: Browser, width: int, scheme: str):
    wide = OrderBook.from_levels(
        Pair(token(b"W" * 32), token(b"M" * 32, 2)),
        bids=[("1e-28", 2**64 - 1), ("2e-28", 2**64 - 1)],
        asks=[(str(2**96 - 1), 2**64 - 1)],
        spot=str(2**96 - 1),
    )
    settings: dict[str, Any] = {"width": width, "color_scheme": scheme, "reduced_motion": "reduce"}
    with visited(browser, LiveIndex([*sample(), wide]), **settings) as visit:
        page = visit.open()
        page.wait_for_selector("#list a")

        def fits() -> bool:
            return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

        assert fits()
        for pair in (wide.pair, SNEK_ADA):
            page.locator(f"#list a[data-key='{pair}']").click()
            page.wait_for_selector(".ladder tr[data-price]")
            assert fits()
            clipped = page.locator(".panel, .ladder td, .facts, .facts dd").evaluate_all(
                "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
            )
            assert clipped == []
            # Beside the book on a wide screen; on a narrow one, one after the other.
            visit.is_visible("#list", expected=(width > 700))
            if width < 700:
                page.keyboard.press("/")
                page.keyboard.type("w")
                assert page.input_value("#search") == "w"
                page.fill("#search", "")
                page.go_back()
                page.wait_for_selector(".ladder tr[data-price]")
                page.get_by_role("link", name="All pairs").click()
                visit.is_visible("#list")
                visit.is_visible("article", expected=False)


def test_it_works_below_a_path_of_a_proxy(browser: Browser):
    live = LiveIndex(sample())
    app = Starlette(routes=[Mount("/market/books", app_with_page(live))])
    with served(app) as service, visiting(browser, service.port) as visit:
        visit.open(SNEK_ADA, "/market/books/").wait_for_selector(".ladder tr[data-price]")
        visit.becomes(lambda: visit.facts().get("Spot"), "4123.5")
