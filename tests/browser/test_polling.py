"""Polling in a real browser: changes of books and pairs, and failures of the service."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from market_index import ADA, LiveIndex, OrderBook, Pair
from tests.browser.visit import ladder_rows, visited, visiting
from tests.page import SNEK_ADA, sample, token
from tests.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.thorough

TIMEOUTS_BY_FAKE_CLOCK = """AbortSignal.timeout = (milliseconds) => {
  const controller = new AbortController();
  setTimeout(() => controller.abort(new DOMException("timed out", "TimeoutError")), milliseconds);
  return controller.signal;
};"""
"""Lets the clock of a visit move the timeouts of requests."""


def set_hidden(page: Page, *, hidden: bool) -> None:
    """Hide the tab behind another, or bring it back."""
    page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_new_pair_is_listed(browser: Browser):
    live = LiveIndex()
    with visited(browser, live) as visit:
        visit.open_live()
        visit.shows("#count", "No pair is tracked yet.")
        visit.contains("#state", "Published pairs will appear here.")
        live.publish(OrderBook.from_levels(Pair(token(b"NEW"), ADA), bids=[("1", 1)]))
        visit.becomes(visit.pairs, ["NEW/ADA"])
        visit.shows("#count", "1 pair")


def test_unchanged_content_is_not_sent_again(browser: Browser):
    """Also by a service that lets no request wait: then the page polls."""
    with visited(browser, LiveIndex(sample()), max_wait=0) as visit:
        statuses: list[tuple[str, int]] = []
        visit.page.on("response", lambda answer: statuses.append((answer.url.rpartition("/")[2][:9], answer.status)))
        visit.open_live(SNEK_ADA)
        visit.poll()
        visit.until(lambda: ("order-boo", 304) in statuses)
        visit.poll()
        visit.until(lambda: statuses.count(("order-boo", 304)) >= 3)
        assert statuses.count(("order-boo", 200)) == 1
        assert statuses.count(("pair-list", 200)) == 1


@pytest.mark.parametrize("max_wait", [0, 60], ids=["polling", "waiting"])
def test_changes_of_the_book_and_of_the_list_are_shown(browser: Browser, max_wait: int):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)], spot="4")
    live = LiveIndex([book])
    with visited(browser, live, max_wait=max_wait) as visit:
        visit.open_live(SNEK_ADA)
        for amount in range(11, 14):
            following = book.apply(bids=[("4", amount)], spot=str(amount))
            live.publish(following)
            visit.becomes(visit.ladder, ladder_rows(following))
            visit.shows("#list .spot", str(amount))
        other = OrderBook.from_levels(Pair(token(b"NEW"), ADA), bids=[("1", 1)])
        live.publish(other)
        visit.becomes(lambda: len(visit.pairs()), 2)


def test_a_hidden_page_requests_nothing(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live(SNEK_ADA)
        set_hidden(page, hidden=True)
        before = len(visit.requested)
        page.clock.run_for(60_000)
        assert len(visit.requested) == before
        set_hidden(page, hidden=False)
        visit.until(lambda: len(visit.requested) > before)
        visit.is_live()


def test_a_page_that_was_hidden_for_a_minute_is_old_until_it_is_confirmed(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live(SNEK_ADA)
        set_hidden(page, hidden=True)
        held: list[Route] = []
        page.route("**/trading-view/*", lambda route: held.append(route))  # noqa: PLW0108  # Playwright inspects the signature, which a built-in does not have
        page.clock.run_for(60_000)
        set_hidden(page, hidden=False)
        visit.shows("#connection", "Connecting…")
        visit.shows(".changed-at", re.compile("^last confirmed "))
        visit.until(lambda: bool(held))
        page.unroute("**/trading-view/*")
        for route in held:
            route.fallback()
        visit.is_live()
        visit.shows(".changed-at", "")


def test_a_service_that_does_not_respond_is_reported(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port, expected="Failed to load resource") as visit:
        held: list[Route] = []
        visit.page.add_init_script(TIMEOUTS_BY_FAKE_CLOCK)
        visit.page.route("**/trading-view/pair-list", lambda route: held.append(route))  # noqa: PLW0108  # as above
        visit.open()
        visit.until(lambda: bool(held))
        visit.page.clock.run_for(10_000)
        visit.contains("#alert", "The service did not respond in time.")


def test_a_retracted_pair_is_reported_and_returns(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)], asks=[("5", 30)])
    other = OrderBook.from_levels(Pair(token(b"STAYS"), ADA), bids=[("1", 1)])
    live = LiveIndex([book, other])
    # The request that waits for the book is answered with 404, which the browser reports.
    with visited(browser, live, expected="Failed to load resource") as visit:
        visit.open_live(SNEK_ADA)
        live.retract(SNEK_ADA)
        visit.shows("#state", "This pair is no longer tracked. Its last order book is shown.")
        visit.becomes(visit.ladder, ladder_rows(book))
        visit.shows(".changed-at", re.compile("^last confirmed "))
        visit.becomes(visit.pairs, ["STAYS/ADA"])
        following = book.apply(bids=[("4", 11)])
        live.publish(following)
        visit.becomes(visit.ladder, ladder_rows(following))
        visit.shows("#state", "")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (503, "busy", "The service responded with an error (503)."),
        (404, "{}", "The API was not found at this address."),
        (200, "<html>proxy</html>", "The service sent an invalid response."),
        (
            200,
            '{"pairs":[{"base":"ADA","quote":"x","last_spot":1.5}]}',
            "The service sent an invalid response.",
        ),
    ],
    ids=["503", "404", "HTML", "float"],
)
def test_an_invalid_response_is_reported(
    browser: Browser, sample_service: Service, status: int, body: str, message: str
):
    with visiting(browser, sample_service.port, expected="Failed to load resource") as visit:
        visit.page.route("**/trading-view/pair-list", lambda route: route.fulfill(status=status, body=body))
        visit.open()
        visit.contains("#alert", message)
        visit.shows("#connection", "No answer")


def test_an_invalid_book_leaves_the_last_one_marked_as_old(browser: Browser):
    live = LiveIndex([OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)])])
    with visited(browser, live, max_wait=0) as visit:
        page = visit.open_live(SNEK_ADA)
        rounded = '{"base":"x","quote":"ADA","spot":null,"bids":[{"price":"4","accumulated_liquidity":1e20}],"asks":[]}'
        page.route("**/order-book?*", lambda route: route.fulfill(status=200, body=rounded))
        visit.poll()
        visit.contains("#alert", "The service sent an invalid response. No response since ")
        visit.becomes(visit.ladder, [("bid", "4", "10", "10")])
        visit.shows(".changed-at", re.compile("^last confirmed "))
        page.unroute("**/order-book?*")
        visit.poll()
        visit.shows("#alert", "")
