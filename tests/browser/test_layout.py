"""The layout of the page in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from market_index import LiveIndex
from tests.browser.visit import visited, visiting
from tests.page import SNEK_ADA, app_with_page, sample, widest
from tests.service import Service, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("width", [768, 1440], ids=["tablet", "desktop"])
def test_the_list_and_a_book_fit_beside_each_other(browser: Browser, width: int):
    wide = widest()
    with visited(browser, LiveIndex([*sample(), wide]), width=width, reduced_motion="reduce") as visit:
        page = visit.open_live()
        visit.fits()
        for pair in (wide.pair, SNEK_ADA):
            page.locator(f"#list a[data-key='{pair}']").click()
            visit.shows("article code >> nth=0", str(pair.base))
            visit.is_visible(".facts")  # hidden until the book arrives
            visit.has(".chart path.line", 2)
            visit.is_visible("#list")
            visit.fits()


def test_a_search_on_a_phone_leaves_the_book(browser: Browser):
    with visited(browser, LiveIndex(sample()), width=360) as visit:
        page = visit.open_live(SNEK_ADA)
        visit.is_visible("#list", expected=False)
        visit.fits()
        page.keyboard.press("/")
        page.keyboard.type("w")
        visit.becomes(lambda: page.input_value("#search"), "w")
        page.go_back()
        visit.is_visible("article")


def test_the_page_works_below_the_path_of_a_proxy(browser: Browser):
    live = LiveIndex(sample())
    app = Starlette(routes=[Mount("/market/books", app_with_page(live))])
    with served(app) as service, visiting(browser, service.port) as visit:
        visit.open(SNEK_ADA, "/market/books/")
        visit.becomes(lambda: visit.facts().get("Spot"), "4123.5")


def test_each_control_has_a_name_for_screen_readers(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live(SNEK_ADA)
        visit.is_visible(".ladder")
        for role, name in [
            ("navigation", "Trading pairs"),
            ("searchbox", "Search by name or identifier"),
            ("combobox", "Order"),
            ("checkbox", "With a spot price"),
            ("button", "Copy the link to this pair"),
            ("table", "Order book: asks above bids, the best of each in the middle"),
            ("region", "Depth chart"),
        ]:
            assert page.locator(f"role={role}[name='{name}']").count() == 1, name
        unnamed = page.locator("button, input, select, a").evaluate_all(
            "all => all.filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length)).length"
        )
        assert unnamed == 0
