"""Polling in a real browser: changes, and services that fail."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from market_index import ADA, LiveIndex, OrderBook, Pair
from tests.browser import as_laddered, visited, visiting
from tests.page import SNEK_ADA, app_with_page, token
from tests.service import Restartable, Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_published_change_arrives_and_only_what_changed_is_written(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10), ("3", 20)], asks=[("5", 30)], spot="4.5")
    live = LiveIndex([book])
    with visited(browser, live) as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".ladder tr[data-price]")
        visit.shows(".changed-at", "")  # nothing has changed since the page was opened
        visit.shows(".units", "Prices: lovelace for one smallest unit of SNEK. Amounts: smallest units of SNEK.")
        page.evaluate("document.querySelector('[data-price=\"3\"]').marked = true")
        following = book.apply(bids=[("4", 0), ("3.5", 2**53 + 1)], asks=[("5", 31)], spot="5")
        live.publish(following)
        visit.waits_for(".facts", "3.5")
        visit.becomes(visit.ladder, as_laddered(following))
        visit.shows(".changed-at", re.compile("^changed "))
        visit.becomes(lambda: visit.facts().get("Spot"), "5")
        visit.waits_for("#list .spot", "5")
        assert page.evaluate("document.querySelector('[data-price=\"3\"]').marked")
        # Two rows light up: the level that is new, and the one that rests more now.
        visit.becomes(page.locator("tr.changed .price").all_text_contents, ["5", "3.5"])
        other = OrderBook.from_levels(Pair(token(b"NEW"), ADA), bids=[("1", 1)])
        live.publish(other)
        visit.waits_for("#list .name", "NEW")


def test_what_has_not_changed_is_not_sent_again(browser: Browser, sent: Service):
    with visiting(browser, sent.port) as visit:
        statuses: list[tuple[str, int]] = []
        visit.page.on("response", lambda answer: statuses.append((answer.url.rpartition("/")[2][:9], answer.status)))
        visit.open(SNEK_ADA).wait_for_selector(".ladder tr[data-price]")
        visit.until(lambda: statuses.count(("order-boo", 304)) >= 2)
        assert statuses.count(("order-boo", 200)) == 1
        assert statuses.count(("pair-list", 200)) == 1


def test_nothing_is_asked_while_nobody_looks(browser: Browser, sent: Service):
    with visiting(browser, sent.port) as visit:
        visit.page.clock.install()
        page = visit.open(SNEK_ADA)
        visit.shows("#connection", "Live")
        page.evaluate(HIDE, True)
        before = len(visit.asked)
        page.clock.run_for(60_000)
        assert len(visit.asked) == before
        page.evaluate(HIDE, False)
        visit.until(lambda: len(visit.asked) > before)
        visit.shows("#connection", "Live")


def test_what_nobody_looked_at_for_a_while_counts_as_old_until_it_is_confirmed(browser: Browser, sent: Service):
    with visiting(browser, sent.port) as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".ladder tr[data-price]")
        page.evaluate(HIDE, True)
        held: list[Route] = []
        page.route("**/trading-view/*", lambda route: held.append(route))  # noqa: PLW0108  # no built-in is taken
        page.evaluate("window.now = Date.now; Date.now = () => now() + 60000")
        page.evaluate(HIDE, False)
        visit.shows("#connection", "Connecting…")
        visit.shows(".changed-at", re.compile("^as it was at "))
        page.evaluate("Date.now = now")
        page.unroute("**/trading-view/*")
        for route in held:
            route.fallback()
        visit.waits_for("#connection", "Live")
        visit.shows(".changed-at", "")


def test_a_service_that_hangs_is_given_up_after_a_while(browser: Browser, sent: Service):
    with visiting(browser, sent.port, expected="Failed to load resource") as visit:
        visit.page.route("**/trading-view/pair-list", lambda _: None)
        visit.open()
        visit.waits_for("#trouble", "The service does not answer.")


def test_a_pair_that_vanishes_is_told_of_and_comes_back(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)], asks=[("5", 30)])
    other = OrderBook.from_levels(Pair(token(b"STAYS"), ADA), bids=[("1", 1)])
    live = LiveIndex([book, other])
    with visited(browser, live) as visit:
        visit.open(SNEK_ADA).wait_for_selector(".ladder tr[data-price]")
        live.retract(SNEK_ADA)
        visit.waits_for("#state", "This pair is no longer tracked. Its last order book is shown.")
        visit.becomes(visit.ladder, as_laddered(book))
        visit.shows(".changed-at", re.compile("^as it was at "))
        visit.becomes(visit.pairs, ["STAYS/ADA"])
        following = book.apply(bids=[("4", 11)])
        live.publish(following)
        visit.waits_for(".ladder", "11")
        visit.shows("#state", "")
        visit.becomes(visit.ladder, as_laddered(following))


def test_a_service_that_goes_is_told_of_and_what_was_good_stays_until_it_is_back(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)], asks=[("5", 30)])
    live = LiveIndex([book])
    server = Restartable(app_with_page(live))
    try:
        # The browser itself notes each refused connection.
        with visiting(browser, server.port, expected="net::ERR_") as visit:
            visit.open(SNEK_ADA).wait_for_selector(".ladder tr[data-price]")
            visit.shows("#connection", "Live")
            server.stop()
            visit.waits_for("#trouble", "The service cannot be reached. No answer since ")
            visit.shows("#connection", "No answer")
            visit.becomes(visit.ladder, as_laddered(book))
            visit.shows(".changed-at", re.compile("^as it was at "))
            following = book.apply(bids=[("4", 12)])
            live.publish(following)
            server.start()
            visit.waits_for(".ladder", "12")
            visit.shows("#trouble", "")
            visit.shows("#connection", "Live")
            visit.becomes(visit.ladder, as_laddered(following))
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (503, "busy", "The service answers with an error (503)."),
        (404, "{}", "There is no service at this address."),
        (200, "<html>proxy</html>", "The service answers with what is no answer of the API."),
        (
            200,
            '{"pairs":[{"base":"ADA","quote":"x","last_spot":1.5}]}',
            "The service answers with what is no answer of the API.",
        ),
    ],
)
def test_answers_that_are_none_are_told_of(browser: Browser, sent: Service, status: int, body: str, said: str):
    with visiting(browser, sent.port, expected="Failed to load resource") as visit:
        visit.page.route("**/trading-view/pair-list", lambda route: route.fulfill(status=status, body=body))
        visit.open()
        visit.waits_for("#trouble", said)
        visit.shows("#connection", "No answer")


def test_a_book_that_does_not_come_leaves_the_one_before_marked_as_old(browser: Browser):
    live = LiveIndex([OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)])])
    with visited(browser, live) as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".ladder tr[data-price]")
        rounded = '{"base":"x","quote":"ADA","spot":null,"bids":[{"price":"4","accumulated_liquidity":1e20}],"asks":[]}'
        page.route("**/order-book?*", lambda route: route.fulfill(status=200, body=rounded))
        visit.waits_for("#trouble", "what is no answer of the API. No answer since ")
        visit.becomes(visit.ladder, [("bid", "4", "10", "10")])
        page.unroute("**/order-book?*")
        page.locator("#trouble:empty").wait_for(state="attached")
