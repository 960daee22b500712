"""The order book in a real browser: ladder, key figures and identifiers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from market_index import ADA, LiveIndex, OrderBook, Pair, format_price
from market_index_cli.tokens import ticker
from tests.browser.visit import ladder_rows, visited, visiting
from tests.page import SNEK, SNEK_ADA, fixed, sample, token
from tests.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.thorough


def test_every_sample_book_is_shown_exactly(browser: Browser, sample_service: Service):
    def text_of(value: Decimal | None) -> str:
        return "none" if value is None else fixed(Fraction(value))

    with visiting(browser, sample_service.port) as visit:
        for book in sample():
            visit.open(book.pair)
            visit.shows("h2", f"{ticker(book.pair.base)}/{ticker(book.pair.quote)}")
            visit.becomes(visit.ladder, ladder_rows(book))
            bid, ask = book.best_bid, book.best_ask
            visit.becomes(
                visit.facts,
                {
                    "Spot": "none yet" if book.spot is None else format_price(book.spot),
                    "Best bid": text_of(bid and bid.price),
                    "Best ask": text_of(ask and ask.price),
                    "Spread": text_of(book.spread),
                    "Mid": text_of(book.mid),
                },
            )
            one_sided = "" if bid and ask else "no bids" if ask else "no asks" if bid else "empty"
            visit.shows(".badge", ("crossed" if book.is_crossed else "locked" if book.is_locked else one_sided))
            visit.is_visible(".chart", expected=bool(bid or ask))


def test_the_units_of_prices_and_amounts_are_named(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        visit.open(SNEK_ADA)
        visit.shows(".units", "Prices: lovelace for one smallest unit of SNEK. Amounts: smallest units of SNEK.")


def test_a_crossed_book_is_marked_and_explained(browser: Browser):
    book = OrderBook.from_levels(Pair(token(b"CROSSED"), ADA), bids=[("6", 10), ("4", 1)], asks=[("5", 30), ("7", 1)])
    with visited(browser, LiveIndex([book])) as visit:
        visit.open_live(book.pair)
        visit.shows(".badge", "crossed")
        visit.contains("article", "The best bid, 6, is above the best ask, 5.")
        visit.becomes(lambda: visit.facts().get("Spread"), "-1")
        visit.has(".chart .spread.crossed", 1)


def test_a_locked_book_is_marked_until_it_is_not_locked(browser: Browser):
    book = OrderBook.from_levels(Pair(token(b"LOCKED"), ADA), bids=[("5", 10)], asks=[("5", 30)])
    live = LiveIndex([book])
    with visited(browser, live) as visit:
        visit.open_live(book.pair)
        visit.shows(".badge", "locked")
        visit.contains("article", "have the same price, 5")
        visit.becomes(lambda: visit.facts().get("Spread"), "0")
        live.publish(book.apply(bids=[("5", 0), ("4", 1)]))
        visit.poll()
        visit.contains(".facts", "4.5")
        visit.shows(".badge", "")
        visit.is_visible("article .notice", expected=False)


def test_an_empty_book_says_so_until_it_has_a_level(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA)
    live = LiveIndex([book])
    with visited(browser, live) as visit:
        page = visit.open_live(SNEK_ADA)
        visit.shows("article .notice", "This order book is empty.")
        visit.is_visible(".ladder", expected=False)
        visit.becomes(
            visit.facts,
            {"Spot": "none yet", "Best bid": "none", "Best ask": "none", "Spread": "none", "Mid": "none"},
        )
        live.publish(book.apply(asks=[("5", 1)]))
        visit.poll()
        visit.contains("article .notice", "This order book has asks only.")
        visit.becomes(visit.ladder, [("ask", "5", "1", "1")])
        visit.becomes(page.locator(".chart path.line").count, 1)


def test_identifiers_are_hidden_until_they_are_requested(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live(SNEK_ADA)
        visit.is_visible("code", expected=False)
        page.get_by_text("Identifiers").click()
        visit.is_visible("code")
        visit.becomes(page.locator("code").all_text_contents, [str(SNEK), "ADA"])


def test_an_identifier_is_selected_if_there_is_no_clipboard(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live(SNEK_ADA)
        visit.stop_clock()
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        page.get_by_text("Identifiers").click()
        page.get_by_role("button", name="Copy the identifier of the base asset").click()
        visit.contains(".identifiers button", "Selected")
        visit.becomes(lambda: page.evaluate("String(getSelection())"), str(SNEK))


def test_a_deep_book_is_shown_from_the_middle_and_further_on_request(browser: Browser):
    book = OrderBook.from_levels(
        SNEK_ADA,
        bids=[(str(5000 - number), number) for number in range(1, 4001)],
        asks=[(str(5000 + number), number) for number in range(1, 4001)],
    )
    with visited(browser, LiveIndex([book])) as visit:
        page = visit.open_live(SNEK_ADA)
        visit.becomes(visit.ladder, ladder_rows(book.depth(15)))
        page.get_by_role("button", name="3,985 more bids below: show 100").click()
        visit.becomes(visit.ladder, [*ladder_rows(book.depth(15))[:15], *ladder_rows(book.depth(115))[115:]])
        page.get_by_role("button", name="3,985 more asks above: show 100").click()
        visit.becomes(visit.ladder, ladder_rows(book.depth(115)))


def test_another_pair_flashes_no_amount_and_has_no_expanded_levels(browser: Browser):
    bids = [(str(5000 - number), number) for number in range(1, 101)]
    first = OrderBook.from_levels(SNEK_ADA, bids=bids)
    second = OrderBook.from_levels(Pair(token(b"OTHER"), ADA), bids=[(price, amount + 1) for price, amount in bids])
    live = LiveIndex([first, second])
    with visited(browser, live) as visit:
        page = visit.open_live(SNEK_ADA)
        page.evaluate(
            """document.addEventListener("animationstart", () => {
                 document.animations = (document.animations ?? 0) + 1;
               })"""
        )
        page.get_by_role("button", name="85 more bids below: show 85").click()
        visit.has(".ladder tr[data-price]", 100)
        page.locator(f"#list a[data-key='{second.pair}']").click()
        visit.becomes(visit.ladder, ladder_rows(second.depth(15)))
        assert page.evaluate("document.getAnimations().length") == 0
        live.publish(second.apply(bids=[("4999", 77)]))
        visit.poll()
        visit.contains(".ladder", "77")
        visit.becomes(lambda: page.evaluate("document.animations"), 1)
