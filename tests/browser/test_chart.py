"""The depth chart in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from market_index import LiveIndex, OrderBook
from tests.browser.visit import visited
from tests.page import SNEK_ADA

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.thorough


def test_the_totals_of_a_crossed_book_include_best_levels_outside_the_chart(browser: Browser):
    bids = [("100", 7), *((f"54.{number}", 1_000) for number in range(90, 100))]
    asks = [("10", 5), *((f"55.{number:02}", 1_000) for number in range(1, 11))]
    with visited(browser, LiveIndex([OrderBook.from_levels(SNEK_ADA, bids, asks)])) as visit:
        visit.open(SNEK_ADA)
        visit.has_attribute(
            ".chart",
            "aria-label",
            "Depth chart: bids from 54.99 to 54.9, 10,007 in all; asks from 55.01 to 55.1, 10,005 in all.",
        )
        # The width is at least 100 pixels.
        visit.has_attribute(".chart rect.crossed", "width", re.compile(r"^[1-9]\d{2,}(\.\d+)?$"))


def test_a_chart_with_room_for_one_round_price_is_drawn_on_a_phone(browser: Browser):
    book = OrderBook.from_levels(
        SNEK_ADA,
        bids=[("0.0000000001", 10**7), ("0.000000021", 10**7)],
        asks=[("0.000000022", 10**7), ("0.000000043", 10**7)],
    )
    with visited(browser, LiveIndex([book])) as visit:
        for width in (320, 360, 390):
            visit.page.set_viewport_size({"width": width, "height": 800})
            visit.page.goto("about:blank")
            visit.open_live(SNEK_ADA)
            visit.has(".chart path.line", 2)


def test_a_chart_that_fails_does_not_stop_the_ladder(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("1", 5)], asks=[("2", 6)])
    live = LiveIndex([book])
    with visited(browser, live, expected="drawing failed") as visit:
        page = visit.open_live(SNEK_ADA)
        visit.has(".chart path.line", 2)
        page.evaluate("void (SVGElement.prototype.setAttribute = () => { throw new Error('drawing failed') })")
        for amount in (777, 778):
            live.publish(book.apply(bids=[("1", amount)]))
            visit.poll()
            visit.contains(".ladder", str(amount))


def test_the_chart_describes_both_sides_and_the_level_below_the_pointer(browser: Browser):
    book = OrderBook.from_levels(
        SNEK_ADA, bids=[("4", 2**53 + 1), ("3", 20)], asks=[("5", 30), ("6", 2**64 - 1), ("1000", 1)], spot="4.6"
    )
    with visited(browser, LiveIndex([book])) as visit:
        page = visit.open(SNEK_ADA)
        visit.has_attribute(
            ".chart",
            "aria-label",
            "Depth chart: bids from 4 to 3, 9,007,199,254,741,013 in all; "
            "asks from 5 to 6, 18,446,744,073,709,551,645 in all.",
        )
        visit.becomes(page.locator(".chart text.mark").all_text_contents, ["mid 4.5", "spot 4.6"])
        visit.shows(".depth-panel .remark", "1 level is outside the price range of the chart.")
        box = page.locator(".chart").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
        visit.shows(".reading", "Asks to 6: 18,446,744,073,709,551,645")
        page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 100)
        visit.shows(".reading", "Bids to 4: 9,007,199,254,740,993")
