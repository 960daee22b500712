"""The most important behaviour of the page, in a real browser. `make test-all` runs the rest of this folder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from market_index import ADA, LiveIndex, OrderBook, Pair
from market_index_cli.tokens import ticker
from tests.browser.visit import ladder_rows, visited, visiting
from tests.feed_state import FeedState
from tests.page import HOSTILE_NAMES, SNEK, SNEK_ADA, app_with_page, token, widest
from tests.service import Restartable, Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_numbers_without_an_exact_float_are_shown_to_the_last_digit(browser: Browser):
    most = str(2**96 - 1)
    book = OrderBook.from_levels(
        Pair(token(b"HUGE"), ADA),
        bids=[("1e-28", 2**53 + 1), ("2e-28", 2**64 - 1)],
        asks=[(most, 2**64 - 1), ("3e-28", 2**53 + 1)],
        spot=most,
    )
    with visited(browser, LiveIndex([book])) as visit:
        visit.open(book.pair)
        visit.becomes(
            visit.ladder,
            [
                ("ask", most, "18,446,744,073,709,551,615", "18,455,751,272,964,292,608"),
                ("ask", "0.0000000000000000000000000003", "9,007,199,254,740,993", "9,007,199,254,740,993"),
                ("bid", "0.0000000000000000000000000002", "18,446,744,073,709,551,615", "18,446,744,073,709,551,615"),
                ("bid", "0.0000000000000000000000000001", "9,007,199,254,740,993", "18,455,751,272,964,292,608"),
            ],
        )
        facts = visit.facts()
        assert facts["Spot"] == most
        assert facts["Mid"] == "0.00000000000000000000000000025"
        assert facts["Spread"] == "0.0000000000000000000000000001"


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("delete JSON.rawJSON;", "This browser rounds large numbers. It must be Chrome 116,"),
        ("", "The service sent an invalid response."),
    ],
    ids=["detected", "not detected"],
)
def test_a_browser_without_the_source_text_of_numbers_shows_none(
    browser: Browser, sample_service: Service, missing: str, message: str
):
    without_source = (
        "const parse = JSON.parse; JSON.parse = (text, reviver) => parse(text, reviver && ((k, v) => reviver(k, v)));"
    )
    with visiting(browser, sample_service.port) as visit:
        visit.page.add_init_script(missing + without_source)
        visit.open(SNEK_ADA)
        visit.contains("#alert", message)
        assert visit.ladder() == []


def test_a_published_change_is_shown(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10), ("3", 20)], asks=[("5", 30)], spot="4.5")
    live = LiveIndex([book])
    with visited(browser, live) as visit:
        page = visit.open_live(SNEK_ADA)
        visit.shows(".changed-at", "")  # nothing has changed since the page was opened
        page.evaluate("document.querySelector('[data-price=\"3\"]').marked = true")
        following = book.apply(bids=[("4", 0), ("3.5", 2**53 + 1)], asks=[("5", 31)], spot="5")
        live.publish(following)
        visit.becomes(visit.ladder, ladder_rows(following))
        visit.shows(".changed-at", re.compile("^changed "))
        visit.becomes(lambda: visit.facts().get("Spot"), "5")
        visit.contains("#list .spot", "5")
        assert page.evaluate("document.querySelector('[data-price=\"3\"]').marked"), "an unchanged row was replaced"
        # Two rows are highlighted: the new level, and the one whose amount grew.
        visit.becomes(page.locator("tr.changed .price").all_text_contents, ["5", "3.5"])


def test_hostile_names_are_harmless_text(browser: Browser):
    pairs = [Pair(token(name, number), token(name, 500)) for number, name in enumerate(HOSTILE_NAMES, 1)]
    live = LiveIndex(OrderBook.from_levels(pair, bids=[("1", 1)]) for pair in pairs)
    names = [f"{ticker(pair.base)}/{ticker(pair.quote)}" for pair in pairs]
    with visited(browser, live) as visit:
        page = visit.open_live()
        visit.becomes(visit.pairs, names)
        for number, pair in enumerate(pairs):
            page.locator("#list a").nth(number).dispatch_event("click")
            visit.becomes(page.locator("h2, code").all_text_contents, [names[number], str(pair.base), str(pair.quote)])
        assert page.evaluate("document.x") is None
        assert page.locator("img, main script, nav script, #list svg").count() == 0
        # Each name is isolated, so that neither changes the direction of the other.
        assert page.locator("h2 > bdi").count() == 2


def test_a_lost_service_is_reported_and_its_last_book_is_marked_as_old(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)], asks=[("5", 30)])
    live = LiveIndex([book])
    server = Restartable(app_with_page(live))
    try:
        # The browser itself reports each failed connection.
        with visiting(browser, server.port, expected="net::ERR_") as visit:
            visit.open_live(SNEK_ADA)
            server.stop()
            visit.poll()
            visit.contains("#alert", "The service cannot be reached. No response since ")
            visit.shows("#connection", "No answer")
            visit.becomes(visit.ladder, ladder_rows(book))
            visit.shows(".changed-at", re.compile("^last confirmed "))
            following = book.apply(bids=[("4", 12)])
            live.publish(following)
            server.start()
            visit.poll()
            visit.becomes(visit.ladder, ladder_rows(following))
            visit.shows("#alert", "")
            visit.is_live()
    finally:
        server.stop()


def test_a_book_whose_publisher_is_silent_is_marked(browser: Browser):
    live, feed = LiveIndex([OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)])]), FeedState(quiet_age=12)
    with visited(browser, live, feed, max_wait=0) as visit:
        visit.open_live(SNEK_ADA)
        visit.shows("#age", re.compile(r"^last publication 1\d s ago$"))
        visit.shows("#as-of", "as of ")
        visit.is_visible("#as-of", expected=False)
        feed.quiet_age = 301
        live.update((), freshness=live.current.freshness.changed("slot 145000000 <b>"))
        visit.poll()
        visit.shows("#connection", "Quiet")
        visit.shows("#age", "no publication for 5 min")
        visit.shows("#as-of", "as of slot 145000000 <b>")
        visit.contains("#alert", "The publisher is not publishing. The data shown may be out of date.")
        visit.has_style(".facts", "border-top-style", "dashed")
        feed.quiet_age = 0
        visit.poll()
        visit.is_live()
        visit.shows("#alert", "")
        visit.has_style(".facts", "border-top-style", "solid")


def test_the_page_fits_a_phone(browser: Browser):
    wide = widest()
    live = LiveIndex([wide, OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)])])
    with visited(browser, live, width=360, reduced_motion="reduce") as visit:
        page = visit.open_live()
        visit.fits()
        # There is room for either the list or the book.
        page.locator(f"#list a[data-key='{wide.pair}']").click()
        visit.is_visible(".facts")  # hidden until the book arrives
        visit.has(".chart path.line", 2)
        visit.is_visible("#list", expected=False)
        visit.fits()
        page.get_by_role("link", name="All pairs").click()
        visit.is_visible("#list")
        visit.is_visible("article", expected=False)


def test_an_identifier_is_copied(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port, permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.open_live(SNEK_ADA)
        visit.stop_clock()
        page.get_by_text("Identifiers").click()
        page.get_by_role("button", name="Copy the identifier of the base asset").click()
        visit.contains(".identifiers button", "Copied")
        visit.becomes(lambda: page.evaluate("navigator.clipboard.readText()"), str(SNEK))


def test_a_pair_is_found_by_name_and_opened(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live()
        page.fill("#search", "snek")
        visit.becomes(visit.pairs, ["SNEK/ADA", "MIN/SNEK"])
        visit.shows("#count", "2 of 13 pairs")
        page.get_by_role("link", name="SNEK/ADA").click()
        visit.becomes(
            visit.facts,
            {"Spot": "4123.5", "Best bid": "4123", "Best ask": "4124", "Spread": "1", "Mid": "4123.5"},
        )
        visit.becomes(page.title, "SNEK/ADA 4123.5 – Order books")
        visit.shows("#list a[aria-current] .name", "SNEK/ADA")
        visit.becomes(lambda: page.url, f"http://127.0.0.1:{visit.port}/#base={SNEK}&quote=ADA")
